"""Where bad values come from and how far they go: one walk over a run's nodes in execution order.

What *bad* means (not finite, too large for float16 …) is for the caller to say. A node whose result is bad
carries the origins of the bad values it was given; one that was given none is an origin itself.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.values import Group, Value
from fxdebug.operators.categories import OVERWRITES, TO_PYTHON_NUMBERS, uses_only_shape
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node

OPERATIONS = ("call_function", "call_method")


class NodeInput(NamedTuple):
    """A value as a node met it, and the origins (as bits) that it carries."""

    value: Value
    carries: int


@dataclass
class Origin:
    """A node where something bad began; ``what`` is whatever the judge said of it."""

    bit: int
    node: Node
    what: object
    given: tuple[Value, ...]
    made: Value
    reached: list[Node] = field(default_factory=list)  # later operations whose results it is in
    absorbed: list[Node] = field(default_factory=list)  # operations that were given it and whose results are well
    output: bool = False


FindCause: TypeAlias = Callable[[Node, list[NodeInput], list[Value], int], object]


class NodeResults:
    """What each node made, memory that it wrote to included, and what it was given."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.written: dict[str, list[Value]] = {}  # node → what memory it wrote to held afterwards
        self._writers: dict[int, list[tuple[int, str]]] = {}  # storage → (position, node) of all that wrote to it
        for call in net.trace.calls:
            body, steps, own = net.bodies[call.index], net.steps(call), net.call_id(call)
            children = iter(() if body is None else body.calls)
            names = [
                net.call_id(net.trace.calls[next(children)]) if step.kind == "call_module" else f"{own}/{step.name}"
                for step in steps
            ]
            for place, value in () if body is None else body.writes:
                id = names[place]
                self.written.setdefault(id, []).append(value)
                if value.storage is not None:
                    self._writers.setdefault(value.storage, []).append((net.nodes[id].position, id))
        for writers in self._writers.values():
            writers.sort()

    def made(self, node: Node) -> list[Value]:
        """Every tensor of its result, and what it wrote into memory that was there before."""
        return [*node.values, *self.written.get(node.id, ())]

    def given(self, node: Node) -> Iterator[tuple[Value, str]]:
        """Each value a node was given, as it was by then, with the node it comes from."""
        edges = self.net.into.get(node.id, [])
        if node.kind == "call_module" and self.net.steps(node.call):
            edges = [edge for edge in edges if edge.argument == "result"]
        if node.op in OVERWRITES and node.target.endswith("_"):
            edges = [edge for edge in edges if edge.argument != "args[0]"]
        if node.step is not None and "out" in node.step.kwargs:  # it is given the place, not what lies there
            edges = [edge for edge in edges if edge.argument.partition("[")[0] != "out"]
        now: dict[str, list[tuple[Value, str]]] = {}  # argument → what its memory held by then
        for edge in edges:
            if edge.kind == "memory":
                now.setdefault(edge.argument, []).extend((value, edge.source) for value in self._now(edge))
        for edge in edges:
            if edge.kind == "memory":
                continue
            values = self.net.nodes[edge.source].values if edge.value is None else (edge.value,)
            later = now.get(edge.argument, [])
            for value in values:
                rewritten = [pair for pair in later if pair[0].storage == value.storage]
                if not any(new.numel >= value.numel for new, _ in rewritten):
                    yield value, edge.source
                yield from rewritten

    def _now(self, edge: Edge) -> list[Value]:
        """What memory held after the writer an edge comes from, which may be a call with the writers in it."""
        if edge.value is None or edge.value.storage is None:
            return []
        storage, until = edge.value.storage, self.net.nodes[edge.source].position
        writers = self._writers.get(storage, [])
        last = bisect.bisect_right(writers, until, key=lambda writer: writer[0]) - 1
        return [value for value in self.written[writers[last][1]] if value.storage == storage] if last >= 0 else []


class Lineage:
    """The origins of what is bad in a run, in execution order.

    ``judge`` is given a node with bad results, what it was given, the bad results and the origins they carry:
    it returns what it finds there to be an origin of, ``None`` for a node that only passes on, or the bits of origins
    that it knows to be in there although no edge brings them.
    """

    def __init__(self, results: NodeResults, bad: Callable[[Value], bool], judge: FindCause) -> None:
        self.origins: list[Origin] = []
        self._results = results
        self._net = results.net
        self._bad = bad
        self._nodes: dict[str, int] = {}
        self._values: dict[int, int] = {}
        self._memory: dict[int, int] = {}  # storage → the same, of what was last found in it
        self._follow(judge)

    def carried(self, node: Node) -> int:
        """The origins in the result of a node, as bits."""
        return self._nodes.get(node.id, 0)

    def of(self, bits: int) -> list[Origin]:
        """The origins of some bits."""
        found = []
        while bits:
            found.append(self.origins[(bits & -bits).bit_length() - 1])
            bits &= bits - 1
        return found

    def _follow(self, judge: FindCause) -> None:
        for node in self._net.nodes.values():
            made = self._results.made(node)
            bad = [value for value in made if self._bad(value)]
            given = self._given(node)
            inherited = 0
            for value, bits in given:
                inherited |= bits if self._bad(value) else 0
            if not bad:
                self._absorbed(node, made, inherited)
                continue
            for value in bad:
                inherited |= self._values.get(value.number, 0)
            around, memory = self._around(node, bad)
            inherited |= memory
            fresh = [value for value in bad if value.number not in around]
            found = judge(node, given, fresh, inherited) if fresh else None
            own = 0
            if isinstance(found, int):
                inherited |= found
            elif found is not None:
                own = 1 << len(self.origins)
                values = tuple(dict.fromkeys(value for value, _ in given))
                self.origins.append(Origin(own, node, found, values, bad[0]))
            self._carry(node, inherited, own, bad)

    def _given(self, node: Node) -> list[NodeInput]:
        found = [
            NodeInput(value, self._values.get(value.number, 0) | self._nodes.get(source, 0))
            for value, source in self._results.given(node)
        ]
        if node.kind == "call_module" and not self._net.steps(node.call):
            found += [NodeInput(value, self._of_input(node.call, value)) for value in node.call.inputs]
            for child in node.call.children:
                bits = self._nodes.get(self._net.call_id(child), 0)
                found += [NodeInput(value, bits) for value in child.outputs or () if self._bad(value)]
        return found

    def _around(self, node: Node, bad: list[Value]) -> tuple[set[int], int]:
        """Where a part of memory was written to: values of all of it that were bad before, and their origins."""
        written = self._results.written.get(node.id, ())
        part = min((value.numel for value in written), default=0)
        wholes = [value for value in bad if value in written and value.numel > part and value.storage in self._memory]
        bits = 0
        for value in wholes:
            bits |= self._memory[value.storage or 0]
        return {value.number for value in wholes}, bits

    def _of_input(self, call: Call, value: Value) -> int:
        """The origins in what a call was given; where its caller combined results unseen, those of all results."""
        bits, parent = self._values.get(value.number, 0), call.parent
        if bits or parent is None or self._net.steps(parent) or not self._bad(value):
            return bits
        for other in parent.inputs:
            bits |= self._values.get(other.number, 0)
        for sibling in parent.children:
            bits |= self._nodes.get(self._net.call_id(sibling), 0)
        return bits

    def _absorbed(self, node: Node, made: list[Value], bits: int) -> None:
        if bits and is_operation(self._net, node) and not _is_query(node, made):
            for origin in self.of(bits):
                origin.absorbed.append(node)

    def _carry(self, node: Node, inherited: int, own: int, bad: list[Value]) -> None:
        self._nodes[node.id] = inherited | own
        for value in bad:
            self._values[value.number] = self._values.get(value.number, 0) | inherited | own
            if value.storage is not None:
                self._memory[value.storage] = inherited | own
        leaves = is_output(node)
        counts = is_operation(self._net, node)
        for origin in self.of(inherited | own) if counts or leaves else ():
            origin.output = origin.output or leaves
            if counts and not origin.bit & own:
                origin.reached.append(node)


def is_operation(net: Network, node: Node) -> bool:
    """Does this node compute something itself? A call does where nothing is known of what is in it."""
    return node.kind in OPERATIONS or (node.kind == "call_module" and not net.steps(node.call) and not _inside(node))


def _inside(node: Node) -> bool:
    return bool(node.call.children)


def is_output(node: Node) -> bool:
    """Is this what the run returned? In a method such as ``generate``: what a forward of the model returned."""
    if node.kind != "call_module":
        return False
    call: Call = node.call
    return call.parent is None or (call.path == "" and call.parent.parent is None and call.parent.method != "forward")


def _is_query(node: Node, made: list[Value]) -> bool:
    """Does it only ask (for a size, for NaN, whether one is larger), so that nothing of the value is in its result?"""
    if uses_only_shape(node.op):
        return True
    return node.op not in TO_PYTHON_NUMBERS and all(value.dtype == "bool" for value in made)


def literals_of(node: Node) -> list[float]:
    """The numbers that are written among a node's arguments."""
    if node.step is None:
        return []
    found: list[float] = []
    pending: list[object] = [*node.step.args, *node.step.kwargs.values()]
    while pending:
        thing = pending.pop()
        if isinstance(thing, Group):
            pending.extend(thing.items)
        elif isinstance(thing, (int, float)) and not isinstance(thing, bool) and not _exceeds_float(thing):
            found.append(thing)
    return found


def _exceeds_float(number: float) -> bool:
    return isinstance(number, int) and abs(number) > 1 << 1000  # floats do not reach there
