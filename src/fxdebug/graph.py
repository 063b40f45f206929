"""A trace as one ``networkx.MultiDiGraph``: every operation, call, input, read parameter and output of a run.

Ids are readable and stable: ``encoder.layer.0.attention.self#0`` is a call, with ``/softmax`` behind it
an operation of its body. Data flows from producers through a call's placeholders and operations to its
output, from there to the node of the call itself, and on to whoever uses the result; so the graph has no
cycles. Attributes are plain strings and numbers: GraphML and node-link JSON can hold all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from fxdebug.ops import Body, Op, refs_in
from fxdebug.trace import Call, Trace
from fxdebug.values import Item, Stats, Value, leaves

STATISTICS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")


@dataclass(frozen=True)
class Node:
    """One node: an operation, a call, a placeholder, a read attribute or an output.

    ``value`` is the first tensor of its result, ``item`` the whole result. ``call`` is the call it is
    part of; for a ``call_module`` node the call it is.
    """

    id: str
    kind: str
    op: str
    target: str
    call: Call
    item: Item = None
    status: str | None = None
    source: str | None = None
    depth: int = 0
    position: int = 0  # in execution order
    step: Op | None = field(default=None, repr=False)  # the node of the call's graph, where it has one

    @property
    def path(self) -> str:
        """The path of the module it belongs to."""
        return self.call.path

    @property
    def value(self) -> Value | None:
        """The first tensor of its result."""
        return next((value for _, value in leaves(self.item)), None)

    @property
    def values(self) -> tuple[Value, ...]:
        """Every tensor of its result."""
        return tuple(value for _, value in leaves(self.item))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of its first tensor."""
        return None if self.value is None else self.value.shape

    @property
    def dtype(self) -> str | None:
        """The dtype of its first tensor."""
        return None if self.value is None else self.value.dtype

    @property
    def stats(self) -> Stats | None:
        """The statistics of its first tensor."""
        return None if self.value is None else self.value.stats

    def __str__(self) -> str:
        return f"{self.id} {self.op}" + (f" {self.value.label}" if self.value is not None else "")

    def __repr__(self) -> str:
        return f"<node {self}>"


@dataclass(frozen=True)
class Edge:
    """A value that flows: from which node, to which, which argument it is there."""

    source: str
    target: str
    argument: str
    value: Value | None = None
    kind: str = "data"  # "memory": the target sees what the source wrote into memory it shares


_END = object()


class Network:
    """The nodes and edges of a trace, before they are a networkx graph; what queries walk on."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []
        explanation = trace.explanation
        self._bodies: tuple[Body | None, ...] = (None,) * len(trace.calls)
        if explanation is not None:
            self._bodies = explanation.bodies
        self._add_calls()
        for call in trace.calls:
            self._connect(call)
        self.into: dict[str, list[Edge]] = {}
        self.out_of: dict[str, list[Edge]] = {}
        for edge in self.edges:
            self.into.setdefault(edge.target, []).append(edge)
            self.out_of.setdefault(edge.source, []).append(edge)

    def call_id(self, call: Call) -> str:
        """The id of a call's node; the root goes by the model's name."""
        return f"{call.path or self.trace.model}#{call.number}"

    # Nodes ---------------------------------------------------------------------------------------

    def _add_calls(self) -> None:
        """Every node in execution order: a call's steps, with what its children did where they were called."""
        entered: set[int] = set()
        pending: list[Iterator[Call]] = [iter(self.trace.calls)]  # the root first; what no body calls follows
        while pending:
            call: Any = next(pending[-1], _END)
            if call is _END:
                pending.pop()
            elif call.index not in entered:
                entered.add(call.index)
                pending.append(self._steps(call))

    def _steps(self, call: Call) -> Iterator[Call]:
        """Add a call's nodes one by one; yields each child where its nodes belong."""
        body, own = self._bodies[call.index], self.call_id(call)
        if body is not None and body.graph is not None:
            children = iter(body.calls)
            for step, item, source in zip(self.trace.graphs[body.graph].ops, body.results, body.sources):
                if step.kind == "call_module":
                    yield self.trace.calls[next(children)]
                    continue
                id, depth = f"{own}/{step.name}", call.depth + 1
                self.nodes[id] = Node(
                    id, step.kind, step.op, step.target, call, item, body.status, source, depth, len(self.nodes), step
                )
        yield from call.children
        status, item = None if body is None else body.status, None if call.outputs is None else call.outputs.item
        self.nodes[own] = Node(
            own, "call_module", call.type, call.path, call, item, status, call.source, call.depth, len(self.nodes)
        )

    # Edges ---------------------------------------------------------------------------------------

    def _connect(self, call: Call) -> None:
        body, own = self._bodies[call.index], self.call_id(call)
        if body is None or body.graph is None:
            self._connect_by_values(call)
            return
        steps = self.trace.graphs[body.graph].ops
        ids = self._ids(call, body, steps)
        writers: dict[int, list[tuple[int, str]]] = {}
        for position, written in self._writes(call, body, steps):
            if written.storage is not None:
                writers.setdefault(written.storage, []).append((position, ids[steps[position].name]))
        positions = {step.name: position for position, step in enumerate(steps)}
        children = iter(body.calls)
        for position, step in enumerate(steps):
            operands = [(f"args{place}", name) for place, name in _references(step.args)]
            operands += [(f"{key}{place}", name) for key, arg in step.kwargs.items() for place, name in refs_in(arg)]
            if step.kind == "output":
                operands = [(place.removeprefix("args[0]") or "result", name) for place, name in operands]
            flows = [(argument, ids[name], self._first(body, positions[name])) for argument, name in operands]
            if step.kind == "call_module":
                self._enter(self.trace.calls[next(children)], flows)
                continue
            target = ids[step.name]
            for (argument, source, value), (_, name) in zip(flows, operands):
                self.edges.append(Edge(source, target, argument, value))
                if value is not None and value.storage is not None:
                    self._memory(writers.get(value.storage, ()), positions[name], position, target, argument, value)
        self.edges.append(Edge(ids[steps[-1].name], own, "result", next(iter(call.outputs or ()), None)))

    def _ids(self, call: Call, body: Body, steps: tuple[Op, ...]) -> dict[str, str]:
        own, children = self.call_id(call), iter(body.calls)
        return {
            step.name: self.call_id(self.trace.calls[next(children)])
            if step.kind == "call_module"
            else f"{own}/{step.name}"
            for step in steps
        }

    @staticmethod
    def _first(body: Body, position: int) -> Value | None:
        return next((value for _, value in leaves(body.results[position])), None)

    def _writes(self, call: Call, body: Body, steps: tuple[Op, ...]) -> Iterator[tuple[int, Value]]:
        """Which steps wrote into memory that was there before, a child's writes counting as its call's."""
        yield from body.writes
        children = iter(body.calls)
        for position, step in enumerate(steps):
            if step.kind == "call_module":
                for inner in self.trace.calls[next(children)].walk():
                    inside = self._bodies[inner.index]
                    yield from ((position, value) for _, value in (inside.writes if inside is not None else ()))

    def _memory(
        self, writers: Iterable[tuple[int, str]], made: int, used: int, target: str, argument: str, value: Value
    ) -> None:
        """An edge from the last step that wrote into a value's memory between its making and this use."""
        between = [writer for position, writer in writers if made < position < used]
        if between and between[-1] != target:
            self.edges.append(Edge(between[-1], target, argument, value, "memory"))

    def _enter(self, child: Call, flows: list[tuple[str, str, Value | None]]) -> None:
        """What is passed to a call goes to the placeholders of its body, or to its node if it has none."""
        own, body = self.call_id(child), self._bodies[child.index]
        if body is None or body.graph is None:
            self.edges += [Edge(source, own, argument, value) for argument, source, value in flows]
            return
        steps = self.trace.graphs[body.graph].ops
        places = [
            (f"{own}/{step.name}", self._first(body, position))
            for position, step in enumerate(steps)
            if step.kind == "placeholder"
        ]
        free = list(flows)
        for target, value in places:
            fitting = [flow for flow in free if value is not None and flow[2] is not None and flow[2] == value]
            chosen = fitting or free[:1]
            for argument, source, passed in chosen:
                self.edges.append(Edge(source, target, argument, passed or value))
            free = [flow for flow in free if flow not in chosen]

    def _connect_by_values(self, call: Call) -> None:
        """Without a graph, values tell who used whose result: among the calls made inside this one."""
        own = self.call_id(call)
        producers: dict[int, str] = {}
        inputs = {value.number for value in call.inputs}
        for child in call.children:
            target = self.call_id(child)
            for argument, value in child.inputs.named():
                if value.number in producers:
                    self._enter(child, [(argument, producers[value.number], value)])
                elif value.number in inputs and call.parent is None:
                    self._input(call, argument, value, child)
            for value in child.outputs or ():
                producers[value.number] = target
        for slot, value in () if call.outputs is None else call.outputs.named():
            if value.number in producers:
                self.edges.append(Edge(producers[value.number], own, slot or "result", value))

    def _input(self, call: Call, argument: str, value: Value, child: Call) -> None:
        id = f"{self.call_id(call)}/input_{value.number}"
        if id not in self.nodes:
            self.nodes[id] = Node(id, "placeholder", "placeholder", argument, call, value, None, None, 1, -1)
        self._enter(child, [(argument, id, value)])


def _references(args: tuple[Any, ...]) -> list[tuple[str, str]]:
    return [(f"[{i}]{place}", name) for i, arg in enumerate(args) for place, name in refs_in(arg)]


# networkx ----------------------------------------------------------------------------------------


def to_networkx(network: Network) -> nx.MultiDiGraph:
    """The graph of a whole run. Its attributes name what no node shows: shared weights, what never ran."""
    trace = network.trace
    graph = nx.MultiDiGraph(model=trace.model, never_called=", ".join(trace.never_called), **_weights(trace))
    for node in network.nodes.values():
        graph.add_node(node.id, **attributes(node))
    for edge in network.edges:
        graph.add_edge(edge.source, edge.target, **_edge_attributes(edge))
    for path in trace.never_called:
        graph.add_node(path, kind="call_module", op=trace.modules[path], path=path, status="never called")
    return graph


def attributes(node: Node) -> dict[str, Any]:
    """A node's attributes for networkx: strings and numbers, absent where unknown."""
    found: dict[str, Any] = {"kind": node.kind, "op": node.op, "target": node.target, "path": node.path}
    found |= {"call": node.call.index, "depth": node.depth, "order": node.position}
    if node.status is not None:
        found["status"] = node.status
    if node.source is not None:
        found["source"] = node.source
    value = node.value
    if value is not None:
        found |= {"shape": str(value.shape), "dtype": value.dtype, "device": value.device, "value": value.number}
        if value.name is not None:
            found["parameter"] = value.name
        if value.stats is not None:
            numbers = {name: getattr(value.stats, name) for name in STATISTICS}
            plain = {k: abs(v) if isinstance(v, complex) else v for k, v in numbers.items() if v is not None}
            found |= {k: v if isinstance(v, float) or abs(v) < 2**63 else float(v) for k, v in plain.items()}
            found["stats"] = " ".join(
                f"{name} {plain[name]:.4g}" for name in ("mean", "std", "min", "max") if name in plain
            )
    return found


def _edge_attributes(edge: Edge) -> dict[str, Any]:
    found: dict[str, Any] = {"argument": edge.argument, "kind": edge.kind}
    if edge.value is not None:
        found |= {"shape": str(edge.value.shape), "dtype": edge.value.dtype, "value": edge.value.number}
    return found


def _weights(trace: Trace) -> dict[str, str]:
    read = {value.name for value in trace.values if value.name is not None}
    unused = [p.name for p in trace.parameters if p.kind == "parameter" and not read & set(p.names)]
    shared = [" = ".join(p.names) for p in trace.parameters if len(p.names) > 1]
    return {"unused_parameters": ", ".join(unused), "shared_weights": ", ".join(shared)}


# Coarser -----------------------------------------------------------------------------------------


def collapsed(network: Network, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """The graph with every call at ``depth`` below the root as one node, what is inside it gone into it.

    With ``ops=False`` only calls without calls in them (or at ``depth``) are left, connected through the
    operations between them.
    """
    fine = {id: _representative(network, node, depth) for id, node in network.nodes.items()}
    graph = nx.MultiDiGraph(model=network.trace.model)
    for id in dict.fromkeys(fine.values()):
        graph.add_node(id, **attributes(network.nodes[id]))
    seen: set[tuple[str, str, str, int | None]] = set()
    for edge in network.edges:
        source, target = fine[edge.source], fine[edge.target]
        key = (source, target, edge.argument, None if edge.value is None else edge.value.number)
        if source != target and key not in seen:
            seen.add(key)
            graph.add_edge(source, target, **_edge_attributes(edge))
    return graph if ops else _modules_only(network, graph)


def _representative(network: Network, node: Node, depth: int | None) -> str:
    if depth is None:
        return node.id
    call: Call | None = node.call
    while call is not None and call.depth > depth:
        call = call.parent
    assert call is not None
    own = network.call_id(call)
    if call is node.call and (node.kind == "call_module" or call.depth < depth):
        return node.id
    return own


def _modules_only(network: Network, graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """Leave out every node that is no call, and calls whose calls are shown; what they joined stays joined."""
    inside = {network.nodes[id].call.parent for id in graph if network.nodes[id].kind == "call_module"}
    kept = {id for id in graph if network.nodes[id].kind == "call_module" and network.nodes[id].call not in inside}
    small = nx.MultiDiGraph(**graph.graph)
    small.add_nodes_from((id, graph.nodes[id]) for id in graph if id in kept)
    reach: dict[str, dict[str, dict[str, Any]]] = {}  # node → the kept calls whose results get there
    for id in sorted(graph, key=lambda id: network.nodes[id].position):
        sources: dict[str, dict[str, Any]] = {}
        for source, _, data in graph.in_edges(id, data=True):
            sources |= {source: data} if source in kept else reach.get(source, {})
        if id in kept:
            for source, data in sources.items():
                small.add_edge(source, id, **data)
        reach[id] = sources
    return small
