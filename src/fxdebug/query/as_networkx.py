"""Conversion to networkx: the whole run as one graph, a part of it, collapsed at a depth, or modules only."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats, Value
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node, network_of
from fxdebug.query.node_lookup import Place, node_at

if TYPE_CHECKING:
    import networkx as nx

_N = TypeVar("_N", bound=Hashable)

STATISTICS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")
_SHOWN = ("mean", "std", "min", "max")
_statistics_of = attrgetter(*STATISTICS)


def whole_graph(trace: TraceData) -> nx.MultiDiGraph:
    """Return the whole run as a networkx graph; built once per trace."""
    graph = trace.cache.get("graph")
    if graph is None:
        graph = trace.cache["graph"] = to_networkx(network_of(trace))
    return graph  # type: ignore[no-any-return]


def graph_at(trace: TraceData, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """Return the graph with every call at ``depth`` as one node: see :func:`collapsed`."""
    return collapsed(network_of(trace), depth, ops=ops)


def maximum_flows(capacities: Mapping[tuple[_N, _N], float], source: _N, targets: Iterable[_N]) -> list[float]:
    """Return the maximum flow from a node to each target; ``capacities`` has those of the edges, by their ends."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_node(source)
    graph.add_edges_from((start, end, {"capacity": capacity}) for (start, end), capacity in capacities.items())
    reached = nx.descendants(graph, source)
    below = graph.subgraph(reached | {source})
    return [float(nx.maximum_flow_value(below, source, end)) if end in reached else 0.0 for end in targets]


def subgraph(trace: TraceData, places: Iterable[Place]) -> nx.MultiDiGraph:
    """Return the graph of some places and the edges among them."""
    net, whole = network_of(trace), whole_graph(trace)
    chosen = {node_at(trace, place).id for place in places}
    graph = empty(model=net.trace.model)
    taken = _taken_numbers(net.trace)
    graph.add_nodes_from((id, attributes(net.nodes[id]) | taken.get(id, {})) for id in net.nodes if id in chosen)
    graph.add_edges_from((u, v, dict(data)) for u, v, data in whole.edges(chosen, data=True) if v in chosen)
    return graph


# The whole run -----------------------------------------------------------------------------------


def empty(**facts: Any) -> nx.MultiDiGraph:
    """Return an empty graph with the given attributes; networkx is imported with the first one."""
    import networkx as nx

    return nx.MultiDiGraph(**facts)


def to_networkx(network: Network) -> nx.MultiDiGraph:
    """Return the graph of a network; its attributes name shared weights, modules never called and unused parameters."""
    trace = network.trace
    graph = empty(**_graph_attributes(network))
    of_values: dict[int, dict[str, Any]] = {}
    taken = _taken_numbers(trace)
    graph.add_nodes_from([(n.id, attributes(n, of_values) | taken.get(n.id, {})) for n in network.nodes.values()])
    graph.add_edges_from((edge.source, edge.target, edge_attributes(edge)) for edge in network.edges)
    for path in trace.never_called:
        id = path if path not in graph else f"{path} (never called)"
        graph.add_node(id, kind="call_module", op=trace.modules[path], path=path, status="never called")
    return graph


def attributes(node: Node, of_values: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return a node's attributes for networkx: strings and numbers, absent where unknown.

    ``of_values`` keeps those of each value: the nodes of one tensor are many.
    """
    facts: dict[str, Any] = {"kind": node.kind, "op": node.op, "target": node.target, "path": node.path}
    facts |= {"call": node.call.index, "depth": node.depth, "order": node.position}
    if node.status is not None:
        facts["status"] = node.status
    if node.source is not None:
        facts["source"] = node.source
    if node.kind == "call_module" and node.call.error is not None:
        facts["error"] = str(node.call.error)
    value = node.value
    if value is not None:
        known = None if of_values is None else of_values.get(value.number)
        if known is None:
            known = _value_attributes(value)
            if of_values is not None:
                of_values[value.number] = known
        facts |= known
    return facts


def _taken_numbers(trace: TraceData) -> dict[str, dict[str, float]]:
    """Return the finite numbers that analyses took, by the id of a call or operation and the name of the measure."""
    found: dict[str, dict[str, float]] = {}
    for name, taken in trace.taken.items():
        for id, number in taken.numbers.items():
            if isinstance(number, (int, float)) and math.isfinite(number):
                found.setdefault(id, {})[name] = number
    return found


def _value_attributes(value: Value) -> dict[str, Any]:
    """Return the attributes of a node that come from its first tensor."""
    facts: dict[str, Any] = {"shape": str(value.shape), "dtype": value.dtype, "device": value.device}
    facts["value"] = value.number
    if value.name is not None:
        facts["parameter"] = value.name
    if value.stats is not None:
        numbers = _finite_numbers(value.stats)
        facts |= numbers
        facts["stats"] = " ".join([f"{name} {numbers[name]:.4g}" for name in _SHOWN if name in numbers])
    return facts


def _finite_numbers(stats: Stats) -> dict[str, int | float]:
    """Return the statistics that are known and finite, as numbers that every format can hold."""
    row = _statistics_of(stats)
    try:
        if all(map(math.isfinite, row)) and stats.absmax < 2**63:  # type: ignore[operator]  # as nearly all are
            return dict(zip(STATISTICS, row))
    except TypeError:  # some are not known, or are complex
        pass
    numbers = {name: _finite_number(number) for name, number in zip(STATISTICS, row)}
    return {name: number for name, number in numbers.items() if number is not None}


def _finite_number(number: Any) -> int | float | None:
    """Return a statistic as a number that every format can hold: complex by magnitude, infinite as ``None``."""
    if isinstance(number, complex):
        number = abs(number)
    if isinstance(number, float):
        return number if math.isfinite(number) else None
    return number if number is None or abs(number) < 2**63 else float(number)


def edge_attributes(edge: Edge) -> dict[str, Any]:
    """Return an edge's attributes for networkx."""
    facts: dict[str, Any] = {"argument": edge.argument, "kind": edge.kind}
    if edge.output:
        facts["output"] = edge.output
    if edge.value is not None:
        facts |= {"shape": str(edge.value.shape), "dtype": edge.value.dtype, "value": edge.value.number}
    return facts


def _graph_attributes(network: Network) -> dict[str, str]:
    """Return the attributes of the whole graph: facts about the run that no node has."""
    trace = network.trace
    weights = [" = ".join(p.names) for p in trace.parameters if len(p.names) > 1]
    modules = sorted({" = ".join(call.aliases) for call in trace.calls if len(call.aliases) > 1})
    facts: dict[str, Any] = {"never_called": trace.never_called, "shared_weights": weights, "shared_modules": modules}
    if trace.call_graphs is not None:
        facts["unused_parameters"] = _unused_parameters(network)
    return {"model": trace.model} | {name: ", ".join(names) for name, names in facts.items()}


def _unused_parameters(network: Network) -> list[str]:
    """Return the parameters that nothing read, except those below calls without a graph, whose reads are not known."""
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


# Collapsed ---------------------------------------------------------------------------------------


def collapsed(network: Network, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """Return the graph in which every call at ``depth`` below the root is one node that replaces its contents.

    With ``ops=False`` only calls without calls inside (or at ``depth``) are left, connected through the operations
    between them: an edge has the value that left the first call and the argument that entered the second.
    """
    stands_for = _representatives(network, depth, leaves=not ops)
    graph = empty(model=network.trace.model)
    chosen = dict.fromkeys(stands_for.values())
    taken = _taken_numbers(network.trace)
    graph.add_nodes_from((id, attributes(network.nodes[id]) | taken.get(id, {})) for id in chosen)
    seen: set[tuple[str, str, str, int | None]] = set()
    for edge in network.edges:
        source, target = stands_for[edge.source], stands_for[edge.target]
        key = (source, target, edge.argument, None if edge.value is None else edge.value.number)
        if source != target and key not in seen:
            seen.add(key)
            graph.add_edge(source, target, **edge_attributes(edge))
    return graph if ops else _modules_only(network, graph)


def _representatives(network: Network, depth: int | None, leaves: bool) -> dict[str, str]:
    """Return, for every node id, the id that stands for it: itself, or the closed call around it."""
    if depth is None:
        depth = max(call.depth for call in network.trace.calls) + 2
    above: dict[int, Call] = {}  # call below the depth → the call at it
    for call in network.trace.calls:
        parent = call.parent
        above[call.index] = call if parent is None or call.depth <= depth else above[parent.index]
    representatives = {}
    for id, node in network.nodes.items():
        top = above[node.call.index]
        closed = top.depth >= depth or (leaves and not top.children)
        representatives[id] = network.call_id(top) if closed else id
    return representatives


def _modules_only(network: Network, graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Return the graph of the innermost calls only; nodes that are left out still connect their neighbours."""
    inside = {network.nodes[id].call.parent for id in graph if network.nodes[id].kind == "call_module"}
    shown = {id for id in graph if network.nodes[id].kind == "call_module" and network.nodes[id].call not in inside}
    graph_of_calls = empty(**graph.graph)
    graph_of_calls.add_nodes_from((id, graph.nodes[id]) for id in graph if id in shown)
    reach: dict[str, dict[str, dict[str, Any]]] = {}  # node → the shown calls whose results get there
    for id in sorted(graph, key=lambda id: network.nodes[id].position):
        sources: dict[tuple[str, str], dict[str, Any]] = {}  # by argument, too: attention(x, x, x) has three edges
        for source, _, data in graph.in_edges(id, data=True):
            arriving = {source: data} if source in shown else reach.get(source, {})
            argument = data["argument"]
            sources |= {(first, argument): {**known, "argument": argument} for first, known in arriving.items()}
        if id in shown:
            graph_of_calls.add_edges_from((source, id, data) for (source, _), data in sources.items())
        reach[id] = {source: data for (source, _), data in sources.items()}
    return graph_of_calls


# Paths -------------------------------------------------------------------------------------------


def shortest_paths(network: Network, inside: Collection[str], first: str, last: str) -> Iterator[list[str]]:
    """Yield paths from one node to another through nodes ``inside``, the shortest first; none if there is no path."""
    import networkx as nx

    simple = nx.DiGraph()
    simple.add_edges_from((e.source, e.target) for e in network.edges if e.source in inside and e.target in inside)
    if first in simple and last in simple:
        yield from nx.shortest_simple_paths(simple, first, last)
