"""The operations of a run and what flows between them, without the calls, arguments and results in between.

The nodes are operations, reads of attributes, the inputs and the output of the run, and calls that nothing can be seen
in. Programs that draw boxes from the names of nodes need no others.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxdebug.data.trace import TraceData
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node, network_of


@dataclass(frozen=True, slots=True)
class Source:
    """An argument of a node: the id of the node that made it, and its position among the tensors of that result."""

    node: str
    output: int = 0


class Dataflow:
    """The nodes of a run in execution order, and the sources of each."""

    def __init__(self, trace: TraceData) -> None:
        self._net: Network = network_of(trace)
        self._known: dict[tuple[str, int | None], list[Source]] = {}
        self.nodes = [node for node in self._net.nodes.values() if self._is_shown(node)]

    def _is_shown(self, node: Node) -> bool:
        if node.kind == "call_module":
            return self._is_closed(node)
        return node.kind not in ("placeholder", "output") or node.call.parent is None

    def _is_closed(self, node: Node) -> bool:
        """Is nothing known of what a call does with its arguments?"""
        if self._net.steps(node.call):
            return False
        return not any(edge.argument == "result" for edge in self._net.into.get(node.id, ()))

    def sources(self, node: Node) -> list[Source]:
        """Return what a node takes, in the order of its arguments, each once."""
        found: dict[Source, None] = {}
        for edge in self._net.into.get(node.id, ()):
            if edge.kind == "data" and not (node.kind == "call_module" and edge.source.startswith(f"{node.id}/")):
                found |= dict.fromkeys(self._sources_of(edge))
        return list(found)

    def _sources_of(self, edge: Edge) -> list[Source]:
        """Follow an edge back through calls, their arguments and their results, to the nodes that made the value."""
        wanted = None if edge.value is None else edge.value.number
        key = edge.source, wanted
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._follow(edge.source, wanted)
        return known

    def _follow(self, start: str, wanted: int | None) -> list[Source]:
        found: list[Source] = []
        pending, seen = [start], {start}
        while pending:
            node = self._net.nodes[pending.pop()]
            if self._is_shown(node):
                found.append(Source(node.id, _position(node, wanted)))
                continue
            edges = [edge for edge in self._net.into.get(node.id, ()) if edge.kind == "data"]
            exact = [edge for edge in edges if edge.value is not None and edge.value.number == wanted]
            if node.kind == "call_module":  # its result; what else arrives is an argument in an object
                edges = [edge for edge in edges if edge.argument == "result"] or edges
                exact = [edge for edge in exact if edge in edges]
            if node.kind == "call_module" and self._net.steps(node.call):
                exact = edges  # one edge, from the node that returns
            for edge in exact or edges:
                if edge.source not in seen:
                    seen.add(edge.source)
                    pending.append(edge.source)
        return found


def _position(node: Node, wanted: int | None) -> int:
    """Return where in a node's result a value is."""
    return next((i for i, value in enumerate(node.values) if value.number == wanted), 0)
