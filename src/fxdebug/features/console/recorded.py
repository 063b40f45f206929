"""A recorded run as a machine: every stop is known from the beginning, and going back costs nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from fxdebug import api
from fxdebug.data.calls import Call, Failure
from fxdebug.data.graphs import Status
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.errors import UsageError
from fxdebug.features.console.machine import NameKind, Slots, Stop, StopKind, Until
from fxdebug.features.console.versions import Versions
from fxdebug.query.measures import Number, number_of
from fxdebug.query.names import names_of_call
from fxdebug.query.network import Network, Node, network_of
from fxdebug.query.node_lookup import node_at

if TYPE_CHECKING:
    import torch

OPERATIONS = ("call_function", "call_method")


class RecordedRun(NamedTuple):
    """The facts that all stops of a run share; ``written`` are the values that each operation wrote to, by its id."""

    net: Network
    versions: Versions
    written: Mapping[str, Sequence[Value]]


class RecordedStop:
    """A stop of a recorded run: a call, and the operation or the end of the call where it is one."""

    __slots__ = ("_inputs", "_net", "_results", "_versions", "_written", "call", "depth", "kind", "node", "number")

    def __init__(self, run: RecordedRun, number: int, kind: StopKind, call: Call, node: Node | None) -> None:
        self._net, self._versions, self._written = run.net, run.versions, run.written
        self.number, self.kind, self.call, self.node = number, kind, call, node
        self.depth = call.depth
        self._inputs: Slots | None = None
        self._results: Slots | None = None

    @property
    def path(self) -> str:
        """The path of the module."""
        return self.call.path

    @property
    def paths(self) -> Sequence[str]:
        """Every path of the module."""
        return names_of_call(self.call)

    @property
    def type(self) -> str:
        """The class of the module."""
        return self.call.type

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def op(self) -> str:
        """The name of the operation."""
        return self.node.op if self.kind == "op" and self.node is not None else ""

    @property
    def id(self) -> str:
        """The id of the operation or the call, as the graph of the run has it."""
        return self.node.id if self.kind == "op" and self.node is not None else self._net.call_id(self.call)

    @property
    def source(self) -> str | None:
        """The user's line; where a call raised, the line that did."""
        if self.error is not None and self.error.here and self.error.source:
            return self.error.source
        return self.node.source if self.kind == "op" and self.node is not None else self.call.source

    @property
    def status(self) -> Status | None:
        """The trust in the graph of the call."""
        return self.call.status

    @property
    def error(self) -> Failure | None:
        """The exception that left the call here."""
        return self.call.error if self.kind == "return" else None

    @property
    def inputs(self) -> Slots:
        """The arguments of the call, or the operands of the operation."""
        if self._inputs is None:
            self._inputs = list(self._given())
        return self._inputs

    def _given(self) -> Iterator[tuple[str, Value]]:
        if self.kind != "op" or self.node is None:
            yield from self.call.inputs.named()
            return
        for edge in self._net.into.get(self.node.id, ()):
            if edge.kind == "data" and edge.value is not None:
                yield edge.argument, self._versions.at(edge.value, self.number - 1)

    @property
    def results(self) -> Slots:
        """The results of the operation or the call."""
        if self._results is None:  # asked again and again, by every condition on the way
            self._results = list(self._made())
        return self._results

    def _made(self) -> Iterator[tuple[str, Value]]:
        if self.kind == "return" and self.call.outputs is not None:
            yield from self.call.outputs.named()
        elif self.kind == "op" and self.node is not None:
            if self.node.values:
                yield from leaves(self.node.item)
            else:  # x[0] = 1 returns nothing
                yield from (("", value) for value in self._written.get(self.node.id, ()))

    def number_of(self, measure: str) -> Number:
        """Return the number of a measure of the operation or the call."""
        if self.kind == "op":
            return None if self.node is None else number_of(self._net.trace, self.node, measure)
        return number_of(self._net.trace, self.call, measure)


class RecordedMachine:
    """Steps through a saved, partial or just-made run."""

    def __init__(self, trace: TraceData) -> None:
        self._trace = trace
        self._net = network_of(trace)
        self._run = RecordedRun(self._net, Versions(self._net), _written(self._net))
        self._stops = list(stops_of(self._run))
        self._at = 0
        self._begin = {stop.call.index: stop.number for stop in self._stops if stop.kind == "call"}
        self._end = {stop.call.index: stop.number for stop in self._stops if stop.kind == "return"}
        self._of_node = self._run.versions.stop_of
        self._of_node.update({stop.id: stop.number for stop in self._stops if stop.kind == "op"})
        self._made: dict[int, dict[str, list[tuple[int, Value]]]] = {}
        self._names: dict[NameKind, set[str]] = {}
        self._weights: dict[str, Value] | None = None

    # Where it stands -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The class of the model."""
        return self._trace.model

    @property
    def stop(self) -> RecordedStop:
        """The stop at which it stands."""
        return self._stops[self._at]

    @property
    def count(self) -> int:
        """The number of stops."""
        return len(self._stops)

    @property
    def frames(self) -> Sequence[RecordedStop]:
        """The ``call`` stops of the open calls, the model's own first."""
        calls = list(self.stop.call.with_ancestors())
        return [self._stops[self._begin[call.index]] for call in reversed(calls)]

    @property
    def ended(self) -> bool:
        """Is it at the last stop?"""
        return self._at == len(self._stops) - 1

    @property
    def interrupted(self) -> bool:
        """No: after Ctrl-C it stands where it was."""
        return False

    # Moving ----------------------------------------------------------------------------------------

    def forward(self, until: Until) -> bool:
        """Go on to the next stop where ``until`` holds, or to the end."""
        return self._move(range(self._at + 1, len(self._stops)), until)

    def backward(self, until: Until) -> bool:
        """Go back to the nearest stop where ``until`` holds, or to the beginning."""
        return self._move(range(self._at - 1, -1, -1), until)

    def _move(self, numbers: range, until: Until) -> bool:
        before = self._at
        try:
            for number in numbers:
                self._at = number
                if until(self._stops[number]):
                    return True
        except BaseException:  # a condition that raised, or Ctrl-C: stay where it was
            self._at = before
            raise
        return False

    def goto(self, number: int) -> None:
        """Stand at a stop."""
        if not 0 <= number < len(self._stops):
            raise UsageError(f"there is no stop {number + 1}: this run has {len(self._stops)}")
        self._at = number

    def find_stop(self, name: str) -> int:
        """Return the number of the stop of an operation, or of the beginning of a call."""
        if name in self._of_node:
            return self._of_node[name]
        node = node_at(self._trace, name)
        if node.id in self._of_node:
            return self._of_node[node.id]
        return (self._end if node.kind == "output" else self._begin)[node.call.index]

    def raised(self) -> int | None:
        """Return the number of the stop where an exception left the call that raised it; ``None`` for a whole run."""
        ends = (self._stops[number] for number in self._end.values())
        return next((stop.number for stop in ends if stop.error is not None and stop.error.here), None)

    # The run ---------------------------------------------------------------------------------------

    def operations(self, frame: Stop) -> Sequence[RecordedStop]:
        """Return the operations of a call, and the ends of the calls that it made."""
        assert isinstance(frame, RecordedStop)
        first, last, depth = self._begin[frame.call.index], self._end[frame.call.index], frame.depth
        inside = self._stops[first + 1 : last]
        return [
            stop
            for stop in inside
            if (stop.kind == "op" and stop.call is frame.call) or (stop.kind == "return" and stop.depth == depth + 1)
        ]

    def has_operations(self, frame: Stop) -> bool:
        """Are the operations of a call known?"""
        assert isinstance(frame, RecordedStop)
        return bool(self._net.steps(frame.call))

    def values(self, frame: Stop) -> Mapping[str, Value]:
        """Return the tensors that exist in a call at the present stop, by name."""
        assert isinstance(frame, RecordedStop)
        found = ((name, self.value(frame, name)) for name in self._made_of(frame.call))
        return {name: value for name, value in found if value is not None}

    def value(self, frame: Stop, name: str) -> Value | None:
        """Return the tensor of a name in a call at the present stop."""
        assert isinstance(frame, RecordedStop)
        versions = self._made_of(frame.call).get(name)
        if versions is None:
            return None
        present = self._position()
        return next((value for position, value in reversed(versions) if position <= present), None)

    def _made_of(self, call: Call) -> dict[str, list[tuple[int, Value]]]:
        """Return the tensors of a call by name, each with the positions from which it is which value."""
        found = self._made.get(call.index)
        if found is None:
            found = self._made[call.index] = {}
            for name, position, value in self._made_in(call):
                found.setdefault(name, []).append((position, value))
        return found

    def _made_in(self, call: Call) -> Iterator[tuple[str, int, Value]]:
        """Yield the tensors of a call by name, each with the position in the network from which it exists."""
        for slot, value in call.inputs.named():
            if slot:
                yield slot, -1, value
        body, own = self._net.bodies[call.index], self._net.call_id(call)
        children = iter(() if body is None else body.calls)
        read: set[str] = set()  # attributes: a later read of the same one is another version of it
        for step in self._net.steps(call):
            if step.kind == "call_module":
                node = self._net.nodes[self._net.call_id(self._trace.calls[next(children)])]
            else:
                node = self._net.nodes[f"{own}/{step.name}"]
            if node.value is None or step.kind == "output":
                continue
            yield step.name, -1 if step.kind == "placeholder" else node.position, node.value
            if step.kind == "get_attr" and step.target not in read:
                read.add(step.target)
                yield step.target, -1, node.value

    def _position(self) -> int:
        """Return the position in the network of the last node that has run."""
        stop = self.stop
        if stop.kind == "call":
            return self._net.first_position[stop.call.index] - 1
        return stop.node.position if stop.node is not None else len(self._net.nodes)

    def now(self, value: Value) -> Value:
        """Return the version of a tensor that its memory holds at the present stop."""
        return self._run.versions.at(value, self._at)

    def weight(self, name: str) -> Value | None:
        """Return a parameter or buffer by its name, as it was read first; :meth:`now` has its present version."""
        if self._weights is None:
            self._weights = {}
            for value in self._trace.values:
                if value.name is not None:
                    self._weights.setdefault(value.name, value)
        return self._weights.get(name)

    def tensor(self, value: Value) -> torch.Tensor:
        """Return the data of a value that the run kept."""
        return self._trace.tensor(value)

    def objects(self, frame: Stop) -> Mapping[str, object]:
        """Return nothing: a recorded run has no objects beside its tensors."""
        return {}

    def evaluating(self) -> AbstractContextManager[object]:
        """Return a block that does nothing: the tensors are copies."""
        return nullcontext()

    def source_text(self, source: str) -> str | None:
        """Return the text of a line as the run kept it; files of this machine are not read."""
        return self._trace.source_lines.get(source)

    def known_names(self, kind: NameKind) -> Collection[str]:
        """Return the paths, classes or operations of the run."""
        if not self._names:
            self._names["path"] = {name for call in self._trace.calls for name in names_of_call(call)}
            self._names["class"] = {call.type for call in self._trace.calls}
            self._names["operation"] = {stop.op for stop in self._stops if stop.kind == "op"}
        return self._names[kind]

    @property
    def knows_all_names(self) -> bool:
        """All names are known: the run is over."""
        return True

    @property
    def trace(self) -> TraceData:
        """The run."""
        return self._trace

    def call_of(self, frame: Stop) -> Call | None:
        """Return the record of a call."""
        return frame.call if isinstance(frame, RecordedStop) else None

    def differs_from(self, reference: TraceData) -> Until:
        """Return a condition that holds where this run adds a difference to that of another run."""
        comparison = api.compare(reference, self._trace)  # type: ignore[call-overload]
        found = [row.b for row in comparison.findings if row.b is not None]
        nodes = {side.node for side in found if side.node is not None}
        calls = {side.call.id for side in found if side.node is None}
        if not found:
            verdict = comparison.verdict
            raise UsageError(f"there is no difference to stop at: the runs are {verdict}; compare RUN shows more")
        return lambda stop: (
            (stop.kind == "op" and stop.id in nodes)
            or (stop.kind == "return" and (stop.id in nodes or stop.call_id in calls))
        )

    def close(self) -> None:
        """Nothing is held."""


def stops_of(run: RecordedRun) -> Iterator[RecordedStop]:
    """Yield every stop of a run: calls in the order in which they began, operations where they ran."""
    net = run.net
    entered: set[int] = set()
    pending: list[tuple[Call, Iterator[Call | Node]]] = []
    number = 0

    def begin(call: Call) -> RecordedStop:
        entered.add(call.index)
        pending.append((call, _inside(run, call, entered)))
        return RecordedStop(run, number, "call", call, None)

    yield begin(net.trace.root)
    number += 1
    while pending:
        call, inside = pending[-1]
        found = next(inside, None)
        if found is None:
            pending.pop()
            yield RecordedStop(run, number, "return", call, net.nodes[net.call_id(call)])
        elif isinstance(found, Call):
            yield begin(found)
        else:
            yield RecordedStop(run, number, "op", call, found)
        number += 1


def _written(net: Network) -> dict[str, list[Value]]:
    """Return the values that each operation wrote to, by its id."""
    found: dict[str, list[Value]] = {}
    for call in net.trace.calls:
        body, steps = net.bodies[call.index], net.steps(call)
        for position, value in () if body is None else body.writes:
            found.setdefault(f"{net.call_id(call)}/{steps[position].name}", []).append(value)
    return found


def _inside(run: RecordedRun, call: Call, entered: set[int]) -> Iterator[Call | Node]:
    """Yield the operations of a call that return or write to tensors, and the calls in it, as they ran.

    A call that is in no graph (of a body that raised, or that is opaque) comes before those that began after it.
    """
    net = run.net
    body, own = net.bodies[call.index], net.call_id(call)
    children = iter(() if body is None else body.calls)
    waiting = iter(call.children)
    for step in net.steps(call):
        if step.kind == "call_module":
            index = next(children)
            for child in waiting:
                if child.index not in entered:
                    yield child
                if child.index >= index:
                    break
            if index not in entered:
                yield net.trace.calls[index]
        elif step.kind in OPERATIONS and (
            net.nodes[f"{own}/{step.name}"].values or f"{own}/{step.name}" in run.written
        ):
            yield net.nodes[f"{own}/{step.name}"]
    for child in waiting:
        if child.index not in entered:
            yield child
