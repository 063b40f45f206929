"""The origins of bad values, and how far these go: one walk over a run's nodes in execution order.

The caller defines *bad*: not finite, too large for float16, and so on. A node with a bad result inherits the origins of
its bad inputs; a node with a bad result and no bad input is an origin itself.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.values import Group, Value
from fxdebug.operators.categories import OVERWRITES, SUMS_OF_RANKS, TO_PYTHON_NUMBERS, is_from_ranks, uses_only_shape
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node

OPERATIONS = ("call_function", "call_method")


class NodeInput(NamedTuple):
    """An input of a node: the value with its content at that time, and the origins in it (``carries``), as bits."""

    value: Value
    carries: int


@dataclass
class Origin:
    """A node where bad values begin: its number as a single ``bit``, the ``cause``, and its first bad ``value``."""

    bit: int
    node: Node
    cause: object
    inputs: tuple[Value, ...]
    value: Value
    reached: list[Node] = field(default_factory=list)  # later operations with bad results because of it
    absorbed: list[Node] = field(default_factory=list)  # operations with a bad input because of it, and a good result
    is_output: bool = False  # did the run return it?


FindCause: TypeAlias = Callable[[Node, list[NodeInput], list[Value], int], object]


class NodeResults:
    """The inputs and outputs of each node, with the content of memory that is written in place."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.written: dict[str, list[Value]] = {}  # node → the new content of the memory it wrote
        self._writers: dict[int, list[tuple[int, str]]] = {}  # storage → (position, node) of each write
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

    def outputs(self, node: Node) -> list[Value]:
        """Return every tensor in a node's result, and the new content of memory that it wrote in place."""
        return [*node.values, *self.written.get(node.id, ())]

    def inputs(self, node: Node) -> Iterator[tuple[Value, str]]:
        """Yield each input of a node with its content at that time, and the node it comes from."""
        edges = self.net.into.get(node.id, [])
        if node.kind == "call_module" and self.net.steps(node.call):
            edges = [edge for edge in edges if edge.argument == "result"]
        if node.op in OVERWRITES and node.target.endswith("_"):
            edges = [edge for edge in edges if edge.argument != "args[0]"]
        if node.step is not None and "out" in node.step.kwargs:  # the memory of ``out`` is an input, its content is not
            edges = [edge for edge in edges if edge.argument.partition("[")[0] != "out"]
        overwritten = self._overwritten_by(node)
        content: dict[str, list[tuple[Value, str]]] = {}  # argument → the content written into its memory since
        for edge in edges:
            if edge.kind == "memory":
                content.setdefault(edge.argument, []).extend(
                    (value, edge.source) for value in self._content_after(edge)
                )
        for edge in edges:
            if edge.kind == "memory":
                continue
            values = self.net.nodes[edge.source].values if edge.value is None else (edge.value,)
            later = content.get(edge.argument)
            for value in values:
                if value.storage in overwritten:
                    continue
                if later is None:  # as for nearly all
                    yield value, edge.source
                    continue
                rewritten = [pair for pair in later if pair[0].storage == value.storage]
                if not any(new.numel >= value.numel for new, _ in rewritten):
                    yield value, edge.source
                yield from rewritten

    def _overwritten_by(self, node: Node) -> set[int | None]:
        """Return the storages in which a collective leaves nothing of the earlier content."""
        if node.op in SUMS_OF_RANKS or not is_from_ranks(node.op, node.target):
            return set()
        return {value.storage for value in self.written.get(node.id, ())} - {None}

    def _content_after(self, edge: Edge) -> list[Value]:
        """Return the content of memory after the source of an edge; if that is a call, the writers may be inside."""
        if edge.value is None or edge.value.storage is None:
            return []
        storage, until = edge.value.storage, self.net.nodes[edge.source].position
        writers = self._writers.get(storage, [])
        last = bisect.bisect_right(writers, until, key=lambda writer: writer[0]) - 1
        return [value for value in self.written[writers[last][1]] if value.storage == storage] if last >= 0 else []


class Lineage:
    """The origins of the bad values in a run, in execution order.

    ``find_cause`` gets a node with bad results, its inputs, the bad results and the origins that they inherit. It
    returns a cause if the node is an origin, ``None`` if it only passes bad values on, or the bits of further origins
    that are in the result although no edge leads there.
    """

    def __init__(self, results: NodeResults, bad: Callable[[Value], bool], find_cause: FindCause) -> None:
        self.origins: list[Origin] = []
        self._results = results
        self._net = results.net
        self._bad = bad
        self._nodes: dict[str, int] = {}  # node → the origins in its result, as bits
        self._values: dict[int, int] = {}  # value number → the same
        self._memory: dict[int, int] = {}  # storage → the origins in its last content
        self._follow(find_cause)

    def carried(self, node: Node) -> int:
        """Return the origins in the result of a node, as bits."""
        return self._nodes.get(node.id, 0)

    def origins_of(self, bits: int) -> list[Origin]:
        """Return the origins whose bits are set in ``bits``."""
        found = []
        while bits:
            found.append(self.origins[(bits & -bits).bit_length() - 1])
            bits &= bits - 1
        return found

    def _follow(self, find_cause: FindCause) -> None:
        for node in self._net.nodes.values():
            outputs = self._results.outputs(node)
            bad = [value for value in outputs if self._bad(value)]
            if not bad and not self.origins:  # nothing to inherit yet: in a healthy run that is every node
                continue
            inputs = self._inputs(node)
            inherited = 0
            for value, bits in inputs:
                inherited |= bits if self._bad(value) else 0
            if not bad:
                self._note_absorbed(node, outputs, inherited)
                continue
            for value in bad:
                inherited |= self._values.get(value.number, 0)
            earlier, memory = self._earlier_in_memory(node, bad)
            inherited |= memory
            if node.kind == "get_attr":  # another object in the same memory, as the local part of a distributed tensor
                for value in bad:
                    inherited |= 0 if value.storage is None else self._memory.get(value.storage, 0)
            fresh = [value for value in bad if value.number not in earlier]
            found = find_cause(node, inputs, fresh, inherited) if fresh else None
            own = 0
            if isinstance(found, int):
                inherited |= found
            elif found is not None:
                own = 1 << len(self.origins)
                values = tuple(dict.fromkeys(value for value, _ in inputs))
                self.origins.append(Origin(own, node, found, values, bad[0]))
            self._carry(node, inherited, own, bad)

    def _inputs(self, node: Node) -> list[NodeInput]:
        found = [
            NodeInput(value, self._values.get(value.number, 0) | self._nodes.get(source, 0))
            for value, source in self._results.inputs(node)
        ]
        if node.kind == "call_module" and not self._net.steps(node.call):
            found += [NodeInput(value, self._of_input(node.call, value)) for value in node.call.inputs]
            for child in node.call.children:
                bits = self._nodes.get(self._net.call_id(child), 0)
                found += [NodeInput(value, bits) for value in child.outputs or () if self._bad(value)]
        return found

    def _earlier_in_memory(self, node: Node, bad: list[Value]) -> tuple[set[int], int]:
        """Return the numbers of values that were bad before the node wrote a part of them, and their origins."""
        written = self._results.written.get(node.id, ())
        part = min((value.numel for value in written), default=0)
        whole = [value for value in bad if value in written and value.numel > part and value.storage in self._memory]
        bits = 0
        for value in whole:
            bits |= self._memory[value.storage or 0]
        return {value.number for value in whole}, bits

    def _of_input(self, call: Call, value: Value) -> int:
        """Return the origins in an input of a call.

        Where the caller's operations were not recorded, they are those of all its inputs and of all calls inside it.
        """
        bits, parent = self._values.get(value.number, 0), call.parent
        if bits or parent is None or self._net.steps(parent) or not self._bad(value):
            return bits
        for other in parent.inputs:
            bits |= self._values.get(other.number, 0)
        for sibling in parent.children:
            bits |= self._nodes.get(self._net.call_id(sibling), 0)
        return bits

    def _note_absorbed(self, node: Node, outputs: list[Value], bits: int) -> None:
        if bits and is_operation(self._net, node) and not _is_query(node, outputs):
            for origin in self.origins_of(bits):
                origin.absorbed.append(node)

    def _carry(self, node: Node, inherited: int, own: int, bad: list[Value]) -> None:
        self._nodes[node.id] = inherited | own
        for value in bad:
            self._values[value.number] = self._values.get(value.number, 0) | inherited | own
            if value.storage is not None:
                self._memory[value.storage] = inherited | own
        leaves = is_output(node)
        counts = is_operation(self._net, node)
        for origin in self.origins_of(inherited | own) if counts or leaves else ():
            origin.is_output = origin.is_output or leaves
            if counts and not origin.bit & own:
                origin.reached.append(node)


def is_operation(net: Network, node: Node) -> bool:
    """Does this node compute something? A call counts only if no operations and no calls inside it are known."""
    return node.kind in OPERATIONS or (node.kind == "call_module" and not net.steps(node.call) and not _has_calls(node))


def _has_calls(node: Node) -> bool:
    return bool(node.call.children)


def is_output(node: Node) -> bool:
    """Is this the result of the run, or, in a method such as ``generate``, of one of the model's forwards?"""
    if node.kind != "call_module":
        return False
    call: Call = node.call
    return call.parent is None or (call.path == "" and call.parent.parent is None and call.parent.method != "forward")


def _is_query(node: Node, outputs: list[Value]) -> bool:
    """Is the node a query (a size, a comparison, ``isnan``), so that its result contains no element of the value?"""
    if uses_only_shape(node.op):
        return True
    return node.op not in TO_PYTHON_NUMBERS and all(value.dtype == "bool" for value in outputs)


def literals_of(node: Node) -> list[float]:
    """Return the literal numbers among a node's arguments."""
    if node.step is None:
        return []
    found: list[float] = []
    pending: list[object] = [*node.step.args, *node.step.kwargs.values()]
    while pending:
        operand = pending.pop()
        if isinstance(operand, Group):
            pending.extend(operand.items)
        elif isinstance(operand, (int, float)) and not isinstance(operand, bool) and not _exceeds_float(operand):
            found.append(operand)
    return found


def _exceeds_float(number: float) -> bool:
    return isinstance(number, int) and abs(number) > 1 << 1000  # too large for a float
