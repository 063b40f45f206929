"""Find the calls and steps of a page by the ids that analyses use."""

from __future__ import annotations

from fxdebug.data.trace import TraceData
from fxdebug.exports.page.pack import NONE
from fxdebug.query.network import root_name


class Places:
    """The calls of a run by id, and the steps of their graphs by name; steps are counted through all calls."""

    def __init__(self, trace: TraceData) -> None:
        root = root_name(trace)
        self._calls = {f"{call.path or root}#{call.number}": call.index for call in trace.calls}
        self._paths: dict[str, int] = {}
        for call in trace.calls:
            self._paths.setdefault(call.path, call.index)
        self._first: list[int] = []
        self._graph_of: list[int] = []
        self._names = [{op.name: i for i, op in enumerate(graph.ops)} for graph in trace.graphs]
        steps = 0
        for body in () if trace.call_graphs is None else trace.call_graphs.bodies:
            self._first.append(steps)
            self._graph_of.append(NONE if body.graph is None else body.graph)
            steps += 0 if body.graph is None else len(trace.graphs[body.graph])

    def of_node(self, id: str) -> tuple[int, int]:
        """Return call and step of the id of a node; -1 for the step of a call itself, both -1 for an unknown id.

        A name of an operation has no slash, a path of a module may have one.
        """
        call = self._calls.get(id)
        if call is not None:
            return call, NONE
        own, _, name = id.rpartition("/")
        call = self._calls.get(own)
        if call is None or call >= len(self._graph_of) or self._graph_of[call] == NONE:
            return (NONE if call is None else call), NONE
        step = self._names[self._graph_of[call]].get(name)
        return call, NONE if step is None else self._first[call] + step

    def of_call(self, id: str) -> int:
        """Return the call of an id or of a path; -1 for none."""
        return self._calls.get(id, self._paths.get(id, NONE))
