"""The network of a run: its nodes in execution order and the edges between them; all queries are answered from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fxdebug.data.calls import Call
from fxdebug.data.graphs import CallGraph, NodeKind, Op, Status, refs_in
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Item, Stats, Value, fast_constructor, leaves
from fxdebug.printable import printable
from fxdebug.query.edges import Edge, Flows


@dataclass(frozen=True)
class Node:
    """One node: an operation, a call, a placeholder, a read attribute or an output.

    ``value`` is the first tensor of its result, ``item`` the whole result. ``call`` is the call that ran it; a
    ``call_module`` node is that call itself.
    """

    id: str
    call: Call
    item: Item = None
    status: Status | None = None
    source: str | None = None
    depth: int = 0
    position: int = 0  # in execution order
    step: Op | None = field(default=None, repr=False)  # the same node in the call's graph, where it has one
    slot: str | None = None  # of an input of a run without graphs

    @property
    def kind(self) -> NodeKind:
        """The kind of node, in torch.fx's terms."""
        if self.step is not None:
            return self.step.kind
        return "call_module" if self.slot is None else "placeholder"

    @property
    def op(self) -> str:
        """The short name of the operation; of a call, the class of its module."""
        if self.step is not None:
            return self.step.op
        return self.call.type if self.slot is None else "placeholder"

    @property
    def target(self) -> str:
        """The name of the function, the method or the attribute; of a call, the path of its module."""
        if self.step is not None:
            return self.step.target
        return self.call.path if self.slot is None else self.slot

    @property
    def path(self) -> str:
        """The path of the module it belongs to."""
        return self.call.path

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Every tensor of its result."""
        return (self.item,) if isinstance(self.item, Value) else tuple([value for _, value in leaves(self.item)])

    @property
    def value(self) -> Value | None:
        """The first tensor of its result."""
        return self.values[0] if self.values else None

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
        return printable(f"{self.id} {self.op}" + (f" {self.value.label}" if self.value is not None else ""))

    def __repr__(self) -> str:
        return f"<node {self}>"


_quick_node = fast_constructor(Node)
_END = object()


class Network:
    """The nodes and edges of a trace, as plain objects without networkx."""

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []
        self.bodies: tuple[CallGraph | None, ...] = (None,) * len(trace.calls)
        if trace.call_graphs is not None:
            self.bodies = trace.call_graphs.bodies
        self.producer_of: dict[int, str] = {}  # number of a value → the first node that returned it
        self.entry_of: dict[int, str] = {}  # number of a value → the input or read parameter that it is
        self.memory_sources: dict[
            str, list[str]
        ] = {}  # read of an attribute → what made it in this run, or wrote to it
        self.object_sources: dict[str, list[str]] = {}  # argument inside an object → what made it before the call
        self.writers: set[str] = set()  # nodes that wrote to memory which existed before them
        self._last_writer: dict[int, str] = {}  # storage → the node that made it, or last wrote to it
        self._made_at: dict[object, str] = {}  # a place in memory → the node that last returned a tensor there
        self._from_outside: set[int] = set()  # storages that were there before the run: of weights and inputs
        self._root = root_name(trace)
        self.first_position = [0] * len(trace.calls)  # per call: the position of the first node in it
        self._add_nodes()
        Flows(self).connect()
        self.into: dict[str, list[Edge]] = {}
        self.out_of: dict[str, list[Edge]] = {}
        for edge in self.edges:
            self.into.setdefault(edge.target, []).append(edge)
            self.out_of.setdefault(edge.source, []).append(edge)

    def call_id(self, call: Call) -> str:
        """Return the id of a call's node; the root has the model's name unless a module has that name too."""
        return f"{call.path or self._root}#{call.number}"

    def steps(self, call: Call) -> tuple[Op, ...]:
        """Return the nodes of the call's own graph; empty where it has none."""
        body = self.bodies[call.index]
        return () if body is None or body.graph is None else self.trace.graphs[body.graph].ops

    @cached_property
    def written(self) -> dict[str, list[Value]]:
        """By the id of an operation: the new content of the memory that it wrote."""
        found: dict[str, list[Value]] = {}
        for call in self.trace.calls:
            body, steps, own = self.bodies[call.index], self.steps(call), self.call_id(call)
            for place, value in () if body is None else body.writes:
                if steps[place].kind != "call_module":
                    found.setdefault(f"{own}/{steps[place].name}", []).append(value)
        return found

    def writes_to_input(self, value: Value) -> list[tuple[Node, Value]]:
        """Return the operations that wrote into the memory of a tensor given to the model, with what they left there.

        What the model itself made in that memory before, or a weight that was given as an input, is none.
        """
        if value.storage is None or value.storage not in self._from_outside:
            return []
        found = [(self.nodes[id], made) for id, written in self.written.items() for made in written]
        return sorted((one for one in found if one[1].storage == value.storage), key=lambda one: one[0].position)

    def made_before(self, value: Value, call: Call) -> str | None:
        """Return the id of the node that made a value before a call began, or ``None``."""
        id = self.producer_of.get(value.number)
        return id if id is not None and self.nodes[id].position < self.first_position[call.index] else None

    def given_to_model(self, value: Value) -> str | None:
        """Return the id of the input of the model that a value is, or ``None``."""
        id = self.entry_of.get(value.number)
        return id if id is not None and self.nodes[id].kind == "placeholder" else None

    # Nodes ---------------------------------------------------------------------------------------

    def _add_nodes(self) -> None:
        """Add every node in execution order: the steps of a call, and its children where they were called."""
        entered: set[int] = set()
        pending: list[Iterator[Call]] = [iter(self.trace.calls)]  # the root first; then calls that are in no graph
        while pending:
            call: Any = next(pending[-1], _END)
            if call is _END:
                pending.pop()
            elif call.index not in entered:
                entered.add(call.index)
                self.first_position[call.index] = len(self.nodes)
                pending.append(self._enter(call))

    def _enter(self, call: Call) -> Iterator[Call]:
        """Add a call's nodes one by one; yield each child at the position of its nodes."""
        body, steps, own = self.bodies[call.index], self.steps(call), self.call_id(call)
        if body is not None and steps:
            children = iter(body.calls)
            writes: dict[int, list[Value]] = {}
            for position, value in body.writes:
                writes.setdefault(position, []).append(value)
            of_tensors = {each.name for each, item in zip(steps, body.results) if next(leaves(item), None)}
            for position, step in enumerate(steps):
                if step.kind == "call_module":
                    yield self.trace.calls[next(children)]
                    continue
                item, source, depth = body.results[position], body.sources[position], call.depth + 1
                if step.kind == "output" and call.outputs is not None:
                    item = call.outputs.item  # as returned: the node's argument may have been written to since
                self._add(f"{own}/{step.name}", call, item, source, depth, step)
                if isinstance(item, Value) and _takes_out_of_an_object(step, of_tensors):
                    self._note_sources(f"{own}/{step.name}", item)
                for value in writes.get(position, ()):
                    self.writers.add(f"{own}/{step.name}")
                    self._produced(value, f"{own}/{step.name}", is_written=True)
        elif call.parent is None:
            for slot, value in call.inputs.named():
                self._add(f"{own}/{slot}", call, value, None, 1, slot=slot)
        yield from call.children
        item = None if call.outputs is None else call.outputs.item
        self._add(own, call, item, call.source, call.depth)

    def _add(
        self,
        id: str,
        call: Call,
        item: Item,
        source: str | None,
        depth: int,
        step: Op | None = None,
        slot: str | None = None,
    ) -> None:
        body = self.bodies[call.index]
        status = None if body is None else body.status
        node = self.nodes[id] = _quick_node(id, call, item, status, source, depth, len(self.nodes), step, slot)
        kind = node.kind
        if kind == "get_attr":
            for value in node.values:
                self._note_sources(id, value)
                self._enters(value, id)
        elif kind == "placeholder":
            if call.parent is None:
                for value in node.values:
                    self._enters(value, id)
        elif kind != "output":
            for value in node.values:
                if value.number not in self.producer_of:
                    may_write = kind == "call_module" and value.storage not in self._from_outside
                    self._produced(value, id, is_written=may_write)

    def _enters(self, value: Value, id: str) -> None:
        self.entry_of.setdefault(value.number, id)
        if value.storage is not None and value.storage not in self._last_writer:
            self._from_outside.add(value.storage)

    def _produced(self, value: Value, id: str, is_written: bool) -> None:
        self.producer_of.setdefault(value.number, id)
        if value.storage is not None:
            self._made_at[_place_of(value)] = id
            is_view = value.storage in self._last_writer or value.storage in self._from_outside
            if is_written or not is_view:
                self._last_writer[value.storage] = id

    def _note_sources(self, id: str, value: Value) -> None:
        sources = self._sources_of_attribute(value)
        if sources:
            self.memory_sources.setdefault(id, []).extend(sources)

    def _sources_of_attribute(self, value: Value) -> list[str]:
        """Return the nodes from which the tensor in an attribute comes: what made it, and what wrote to it since.

        A weight that was given to a module for one call (``torch.func.functional_call``) was made by an operation, as
        was another view of the same memory. A weight of the module comes from nowhere.
        """
        made, entry = self.producer_of.get(value.number), self.entry_of.get(value.number)
        given = self.given_to_model(value)
        if given is not None:
            made = given
        elif made is not None and entry is not None and self.nodes[entry].position < self.nodes[made].position:
            made = None  # an operation returned the weight as it got it
        if value.storage is None:
            return [] if made is None else [made]
        writer = self._last_writer.get(value.storage)
        if made is None and entry is None:
            made = self._made_at.get(_place_of(value))
        if made is None or writer is None or self.nodes[writer].position <= self.nodes[made].position:
            return [id for id in (made or writer,) if id is not None]
        return [made, writer]


def _takes_out_of_an_object(step: Op, of_tensors: set[str]) -> bool:
    """Does a step read an attribute of a module, or an item of what is in one, where a call has left a tensor?

    ``of_tensors`` are the names of the steps whose results have a tensor in them.
    """
    if step.kind != "call_function" or step.target.rpartition(".")[2] not in ("getattr", "getitem"):
        return False
    names = {name for _, name in refs_in(step.args[0])} if step.args else set()
    return bool(names) and names.isdisjoint(of_tensors)


def _place_of(value: Value) -> object:
    return value.storage, value.offset, value.shape, value.stride


def root_name(trace: TraceData) -> str:
    """Return the name of the root in ids of calls and nodes: the model's, unless a module has that name too."""
    is_taken = trace.model in trace.modules or any(call.path == trace.model for call in trace.calls)
    return "" if is_taken else trace.model


def network_of(trace: TraceData) -> Network:
    """Return the nodes and edges of a trace; built once per trace."""
    network = trace.cache.get("network")
    if network is None:  # of a copy: a trace whose cache refers back to it would wait for the garbage collector
        network = trace.cache["network"] = Network(replace(trace))
    assert isinstance(network, Network)
    return network
