"""The questions a trace answers about its graph: one line each, answered in ``query`` and ``graph``.

They call the door late, so that data needs nothing above it.
"""

from __future__ import annotations

from typing import Any


class Questions:
    """What :class:`~fxdebug.trace.Trace` can be asked besides its fields and ``find``."""

    def ops(self, op: str | None = None, **conditions: Any) -> list[Any]:
        """Operations by name and the same conditions, in execution order: see ``query.ops``."""
        return _ask("ops", self, op, **conditions)

    def node(self, place: Any) -> Any:
        """The graph's node for a call, a value or an id: see ``query.node``."""
        return _ask("node", self, place)

    def upstream(self, place: Any, **options: Any) -> list[Any]:
        """Everything ``place`` depends on: see ``query.upstream``."""
        return _ask("upstream", self, place, **options)

    def downstream(self, place: Any, **options: Any) -> list[Any]:
        """Everything that depends on ``place``: see ``query.downstream``."""
        return _ask("downstream", self, place, **options)

    def producers(self, place: Any) -> list[Any]:
        """What ``place`` is given: see ``query.producers``."""
        return _ask("producers", self, place)

    def consumers(self, place: Any) -> list[Any]:
        """What is given the result of ``place``: see ``query.consumers``."""
        return _ask("consumers", self, place)

    def between(self, start: Any, end: Any) -> list[Any]:
        """Everything on some way from ``start`` to ``end``: see ``query.between``."""
        return _ask("between", self, start, end)

    def paths(self, start: Any, end: Any, **options: Any) -> list[list[Any]]:
        """The ways from ``start`` to ``end``: see ``query.paths``."""
        return _ask("paths", self, start, end, **options)

    def subgraph(self, places: Any) -> Any:
        """A networkx graph of some nodes: see ``query.subgraph``."""
        return _ask("subgraph", self, places)

    def check(self, **options: Any) -> Any:
        """What is wrong with the numbers of the run, worst first: see ``analyses.numerics.check``."""
        from fxdebug import api

        trace: Any = self
        return api.check(trace, **options)

    def pattern(self, names: Any, **options: Any) -> list[Any]:
        """Where operations follow one another: see ``query.pattern``."""
        return _ask("pattern", self, names, **options)

    @property
    def graph(self) -> Any:
        """The whole run as one ``networkx.MultiDiGraph``: see ``graph.to_networkx``."""
        return _ask("whole_graph", self)

    def graph_at(self, depth: int | None = None, *, ops: bool = True) -> Any:
        """The graph with calls at ``depth`` as one node each; ``ops=False``: modules only. See ``graph.collapsed``."""
        from fxdebug import api

        trace: Any = self
        return api.graph_at(trace, depth, ops=ops)


def _ask(question: str, trace: Any, *args: Any, **options: Any) -> Any:
    from fxdebug import api

    return api.ask(question, trace, *args, **options)
