"""The graph of a run for networkx: all of it, a part, collapsed at a depth, or modules only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node, network_of
from fxdebug.query.places import Place, node_at

if TYPE_CHECKING:
    import networkx as nx

STATISTICS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")


def empty(**facts: Any) -> nx.MultiDiGraph:
    """A graph with nothing in it but facts about the whole; networkx is loaded with the first one."""
    import networkx as nx

    return nx.MultiDiGraph(**facts)


def to_networkx(network: Network) -> nx.MultiDiGraph:
    """The graph of a whole run. Its attributes name what no node shows: shared weights, what never ran."""
    trace = network.trace
    graph = empty(**_facts(network))
    graph.add_nodes_from((node.id, attributes(node)) for node in network.nodes.values())
    graph.add_edges_from((edge.source, edge.target, edge_attributes(edge)) for edge in network.edges)
    for path in trace.never_called:
        id = path if path not in graph else f"{path} (never called)"
        graph.add_node(id, kind="call_module", op=trace.modules[path], path=path, status="never called")
    return graph


def attributes(node: Node) -> dict[str, Any]:
    """A node's attributes for networkx: strings and numbers, absent where unknown."""
    found: dict[str, Any] = {"kind": node.kind, "op": node.op, "target": node.target, "path": node.path}
    found |= {"call": node.call.index, "depth": node.depth, "order": node.position}
    if node.status is not None:
        found["status"] = node.status
    if node.source is not None:
        found["source"] = node.source
    if node.kind == "call_module" and node.call.error is not None:
        found["error"] = str(node.call.error)
    value = node.value
    if value is not None:
        found |= {"shape": str(value.shape), "dtype": value.dtype, "device": value.device, "value": value.number}
        if value.name is not None:
            found["parameter"] = value.name
        if value.stats is not None:
            numbers = {name: _plain(getattr(value.stats, name)) for name in STATISTICS}
            found |= {name: number for name, number in numbers.items() if number is not None}
            found["stats"] = " ".join(
                f"{name} {numbers[name]:.4g}" for name in ("mean", "std", "min", "max") if numbers[name] is not None
            )
    return found


def _plain(number: Any) -> int | float | None:
    """A statistic as a number every format can hold: complex ones by magnitude, infinite ones left out."""
    if isinstance(number, complex):
        number = abs(number)
    if isinstance(number, float):
        return number if math.isfinite(number) else None
    return number if number is None or abs(number) < 2**63 else float(number)


def edge_attributes(edge: Edge) -> dict[str, Any]:
    """An edge's attributes for networkx."""
    found: dict[str, Any] = {"argument": edge.argument, "kind": edge.kind}
    if edge.output:
        found["output"] = edge.output
    if edge.value is not None:
        found |= {"shape": str(edge.value.shape), "dtype": edge.value.dtype, "value": edge.value.number}
    return found


def _facts(network: Network) -> dict[str, str]:
    """Of the whole run: what no node shows."""
    trace = network.trace
    weights = [" = ".join(p.names) for p in trace.parameters if len(p.names) > 1]
    modules = sorted({" = ".join(call.aliases) for call in trace.calls if len(call.aliases) > 1})
    facts: dict[str, Any] = {"never_called": trace.never_called, "shared_weights": weights, "shared_modules": modules}
    if trace.call_graphs is not None:
        facts["unused_parameters"] = _unused(network)
    return {"model": trace.model} | {name: ", ".join(found) for name, found in facts.items()}


def _unused(network: Network) -> list[str]:
    """Parameters that nothing read; of a call without a graph nobody can tell."""
    trace = network.trace
    read = {value.name for value in trace.values if value.name is not None}
    closed = {call.path for call in trace.calls if not network.steps(call) and (call.parent or not call.children)}
    below = tuple(f"{path}." if path else "" for path in closed)
    return [
        parameter.name
        for parameter in trace.parameters
        if parameter.kind == "parameter"
        and not read & set(parameter.names)
        and not any(name.startswith(below) for name in parameter.names)
    ]


# Parts -------------------------------------------------------------------------------------------


def subgraph_of_ids(network: Network, whole: nx.MultiDiGraph, chosen: Collection[str]) -> nx.MultiDiGraph:
    """The nodes of these ids and the edges among them."""
    graph = empty(model=network.trace.model)
    graph.add_nodes_from((id, attributes(network.nodes[id])) for id in network.nodes if id in chosen)
    graph.add_edges_from((u, v, dict(data)) for u, v, data in whole.edges(chosen, data=True) if v in chosen)
    return graph


def shortest_paths(network: Network, inside: Collection[str], first: str, last: str) -> Iterator[list[str]]:
    """Ways from one node to another through nodes ``inside``, the shortest first; none where there is no way."""
    import networkx as nx

    plain = nx.DiGraph()
    plain.add_edges_from((e.source, e.target) for e in network.edges if e.source in inside and e.target in inside)
    if first in plain and last in plain:
        yield from nx.shortest_simple_paths(plain, first, last)


# Coarser -----------------------------------------------------------------------------------------


def collapsed(network: Network, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """The graph with every call at ``depth`` below the root as one node, what is inside it gone into it.

    With ``ops=False`` only calls without calls in them (or at ``depth``) are left, connected through the
    operations between them: an edge has the value that left the one and the argument by which it got into the other.
    """
    fine = _representatives(network, depth, leaves=not ops)
    graph = empty(model=network.trace.model)
    chosen = dict.fromkeys(fine.values())
    graph.add_nodes_from((id, attributes(network.nodes[id])) for id in chosen)
    seen: set[tuple[str, str, str, int | None]] = set()
    for edge in network.edges:
        source, target = fine[edge.source], fine[edge.target]
        key = (source, target, edge.argument, None if edge.value is None else edge.value.number)
        if source != target and key not in seen:
            seen.add(key)
            graph.add_edge(source, target, **edge_attributes(edge))
    return graph if ops else _modules_only(network, graph)


def _representatives(network: Network, depth: int | None, leaves: bool) -> dict[str, str]:
    """Every node's id → the node that stands for it: itself, or the call at ``depth`` (or without calls) it is in."""
    if depth is None:
        depth = max(call.depth for call in network.trace.calls) + 2
    above: dict[int, Call] = {}  # call below the depth → the call at it
    for call in network.trace.calls:
        parent = call.parent
        above[call.index] = call if parent is None or call.depth <= depth else above[parent.index]
    found = {}
    for id, node in network.nodes.items():
        top = above[node.call.index]
        closed = top.depth >= depth or (leaves and not top.children)
        found[id] = network.call_id(top) if closed else id
    return found


def _modules_only(network: Network, graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Leave out every node that is no call, and calls whose calls are shown; what they joined stays joined."""
    inside = {network.nodes[id].call.parent for id in graph if network.nodes[id].kind == "call_module"}
    kept = {id for id in graph if network.nodes[id].kind == "call_module" and network.nodes[id].call not in inside}
    small = empty(**graph.graph)
    small.add_nodes_from((id, graph.nodes[id]) for id in graph if id in kept)
    reach: dict[str, dict[str, dict[str, Any]]] = {}  # node → the kept calls whose results get there
    for id in sorted(graph, key=lambda id: network.nodes[id].position):
        sources: dict[tuple[str, str], dict[str, Any]] = {}  # by argument, too: attention(x, x, x) has three edges
        for source, _, data in graph.in_edges(id, data=True):
            arriving = {source: data} if source in kept else reach.get(source, {})
            argument = data["argument"]
            sources |= {(first, argument): {**known, "argument": argument} for first, known in arriving.items()}
        if id in kept:
            small.add_edges_from((source, id, data) for (source, _), data in sources.items())
        reach[id] = {source: data for (source, _), data in sources.items()}
    return small


def subgraph(trace: TraceData, places: Iterable[Place]) -> nx.MultiDiGraph:
    """The networkx graph of some nodes and the edges among them."""
    net = network_of(trace)
    return subgraph_of_ids(net, whole_graph(trace), {node_at(trace, place).id for place in places})


def whole_graph(trace: TraceData) -> nx.MultiDiGraph:
    """The trace as networkx, made once."""
    found = trace.cache.get("graph")
    if found is None:
        found = trace.cache["graph"] = to_networkx(network_of(trace))
    return found  # type: ignore[no-any-return]


def graph_at(trace: TraceData, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """The graph with every call at ``depth`` as one node: see :func:`fxdebug.graph.collapsed`."""
    return collapsed(network_of(trace), depth, ops=ops)
