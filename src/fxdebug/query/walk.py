"""Walk the graph of a run: upstream, downstream, producers, consumers, paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from fxdebug.data.trace import TraceData
from fxdebug.query.as_networkx import shortest_paths
from fxdebug.query.network import Network, Node, network_of
from fxdebug.query.node_lookup import Place, node_at


def upstream(trace: TraceData, place: Place, *, steps: int | None = None) -> list[Node]:
    """Return every node that ``place`` depends on, in execution order; at most ``steps`` operations away."""
    net = network_of(trace)
    return _reached(net, node_at(trace, place), lambda id: (e.source for e in net.into.get(id, ())), steps)


def downstream(trace: TraceData, place: Place, *, steps: int | None = None) -> list[Node]:
    """Return every node that depends on ``place``, in execution order; at most ``steps`` operations away."""
    net = network_of(trace)
    return _reached(net, node_at(trace, place), lambda id: (e.target for e in net.out_of.get(id, ())), steps)


def producers(trace: TraceData, place: Place) -> list[Node]:
    """Return the nodes whose results ``place`` takes; for a call, the nodes that made its arguments."""
    net, node = network_of(trace), node_at(trace, place)
    entrances = [node.id]
    if node.kind == "call_module":
        placeholders = [n.id for n in net.nodes.values() if n.kind == "placeholder" and n.call is node.call]
        entrances = placeholders or entrances
    sources = {edge.source for id in entrances for edge in net.into.get(id, ())}
    return sorted((net.nodes[id] for id in sources), key=lambda n: n.position)


def consumers(trace: TraceData, place: Place) -> list[Node]:
    """Return the nodes that take the result of ``place``."""
    net = network_of(trace)
    targets = {edge.target for edge in net.out_of.get(node_at(trace, place).id, ())}
    return sorted((net.nodes[id] for id in targets), key=lambda n: n.position)


def nodes_between(trace: TraceData, start: Place, end: Place) -> list[Node]:
    """Return every node on some path from ``start`` to ``end``, both included; empty if there is no path."""
    first, last = node_at(trace, start), node_at(trace, end)
    after = {n.id for n in downstream(trace, first)} | {first.id}
    return [n for n in [*upstream(trace, last), last] if n.id in after] if last.id in after else []


def paths_between(trace: TraceData, start: Place, end: Place, *, limit: int = 100) -> list[list[Node]]:
    """Return paths from ``start`` to ``end``, the shortest first, at most ``limit`` of them."""
    net = network_of(trace)
    inside = {n.id for n in nodes_between(trace, start, end)}
    paths = shortest_paths(net, inside, node_at(trace, start).id, node_at(trace, end).id)
    return [[net.nodes[id] for id in path] for path in islice(paths, limit if limit > 0 else None)]


def _reached(net: Network, start: Node, neighbours: Callable[[str], Iterable[str]], steps: int | None) -> list[Node]:
    """Return the nodes up to the operations ``steps`` away, with all that lies between: inputs, outputs, calls."""
    visited = {start.id}
    frontier = [start.id]
    while frontier and (steps is None or steps > 0):
        pending, frontier = frontier, []
        while pending:
            found = [id for id in neighbours(pending.pop()) if id not in visited]
            visited.update(found)
            for id in found:
                (frontier if _is_operation(net, net.nodes[id]) else pending).append(id)
        steps = None if steps is None else steps - 1
    return sorted((net.nodes[id] for id in visited - {start.id}), key=lambda n: n.position)


def _is_operation(net: Network, node: Node) -> bool:
    """Does the node compute: a function, a method, or a call whose operations are not known?"""
    if node.kind == "call_module":
        return not net.steps(node.call) and not node.call.children
    return node.kind in ("call_function", "call_method")
