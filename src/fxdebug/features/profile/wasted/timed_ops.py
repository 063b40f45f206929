"""The operations of a run with their times, in execution order: who made each value, and who uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fxdebug.analyses.cost.reached_by_backward import Step
from fxdebug.data.findings import ADVICE, Finding, Severity
from fxdebug.data.measured.timings import OpTiming
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.features.profile.report import CallProfile
from fxdebug.operators.categories import ADDS, CASTS, DRAWS, ELEMENTWISE, UNFILLED, VIEWS, WRITES
from fxdebug.operators.names import canonical
from fxdebug.query.network import network_of

_ASSIGN = (ELEMENTWISE - CASTS) | ADDS | frozenset("lerp addcmul addcdiv clamp sqrt neg abs clip".split())
FOREACH = ("foreach_", "_foreach_")  # operations on lists of tensors


@dataclass(frozen=True, eq=False)
class TimedOp:
    """One operation: its node, the call it ran in, its least seconds (forward and backward), and its line.

    ``operands`` and ``results`` are the tensors that it takes and returns.
    """

    node: str
    profile: CallProfile
    step: Step
    seconds: float
    backward: float
    source: str | None
    position: int
    operands: tuple[Value, ...]
    results: tuple[Value, ...]

    @property
    def name(self) -> str:
        """The canonical name of the operation."""
        return canonical(self.step.op.op.partition(".")[0])


class Work:
    """All operations of a run, and the time of all of them; ``is_known`` where every call has its operations."""

    def __init__(self, trace: TraceData, calls: Sequence[CallProfile], *, has_loss: bool = False) -> None:
        self.trace, self.calls, self.has_loss = trace, calls, has_loss
        net = network_of(trace)
        self.call_id = {profile.call.index: net.call_id(profile.call) for profile in calls}
        positions = {node.id: node.position for node in net.nodes.values()}
        self.ops = sorted(self._operations(positions), key=lambda op: op.position)
        self.seconds = sum(op.seconds for op in self.ops)
        self.maker: dict[int, TimedOp] = {}
        self.users: defaultdict[int, list[TimedOp]] = defaultdict(list)
        for op in self.ops:
            given = {value.number for value in op.operands}
            for value in op.results:
                if value.number not in given:  # ``contiguous`` may return what it was given
                    self.maker.setdefault(value.number, op)
            for value in op.operands:
                self.users[value.number].append(op)
        self.returned = {value.number for value in trace.root.outputs or ()}
        opaque = [p.call for p in calls if not p.steps and (p.call.graph is None or p.call.body is None)]
        self.unseen = {value.number for call in opaque for value in call.inputs}  # used by what was not recorded
        self.written = {value.storage for op in self.ops for value in written_by(op)} - {None}
        self.changed = {value.name for op in self.ops for value in written_by(op)} - {None}  # weights, averages

    def _operations(self, positions: dict[str, int]) -> Iterator[TimedOp]:
        for profile in self.calls:
            sources: dict[str, str | None] = {}
            if profile.call.body is not None and profile.call.graph is not None:
                sources = {op.name: line for op, line in zip(profile.call.graph.ops, profile.call.body.sources)}
            for step, timing in profile.steps:
                node = f"{self.call_id[profile.call.index]}/{step.op.name}"
                operands = [value for item in (*step.args, *step.kwargs.values()) for _, value in leaves(item)]
                forward, backward = _seconds(timing)
                yield TimedOp(
                    node,
                    profile,
                    step,
                    forward + backward,
                    backward,
                    sources.get(step.op.name),
                    positions.get(node, -1),
                    tuple(operands),
                    tuple([value for _, value in leaves(step.result)]),
                )

    def share(self, seconds: float) -> float:
        """Return seconds in % of the time of all operations."""
        return 100 * seconds / self.seconds if self.seconds else 0.0

    def around(self, index: int | None) -> Iterator[int]:
        """Yield a call and those that it ran in, by their indices."""
        while index is not None:
            yield index
            index = self.trace.calls[index].parent_index

    def line(self, op: TimedOp) -> str | None:
        """Return the line of an operation, or that which called its module, or the one around."""
        if op.source:
            return op.source
        call = op.profile.call
        while call is not None:
            if call.source:
                return call.source
            call = self.trace.calls[call.parent_index] if call.parent_index is not None else None  # type: ignore[assignment]
        return None

    def finding(
        self, rule: str, op: TimedOp, share: float, least: float, what: str, advice: str, severity: Severity = ADVICE
    ) -> Finding:
        """Return a finding at an operation, with the share of the time at stake as its number."""
        return Finding(
            rule=rule,
            severity=severity,
            path=op.profile.call.path,
            call=self.call_id[op.profile.call.index],
            op=op.step.op.op,
            node=op.node,
            what=f"{what}: {share:.0f} % of the time is at stake",
            source=self.line(op),
            measured=share,
            threshold=least,
            unit="%",
            advice=advice,
        )


def writes(op: TimedOp) -> bool:
    """Does an operation write into a tensor that it is given?"""
    name = op.step.op.op.partition(".")[0]
    if name.startswith(FOREACH):
        return not op.results
    plain = name.strip("_")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or canonical(plain) in WRITES & {"setitem"} or _is_assigned(op)


def _is_assigned(op: TimedOp) -> bool:
    """Is the result in the memory of the first operand: ``+=``, ``lerp_`` and the like?"""
    if op.name not in _ASSIGN or not op.operands or len(op.results) != 1:
        return False
    before, after = op.operands[0], op.results[0]
    return after.storage is not None and after.storage == before.storage


def written_by(op: TimedOp) -> tuple[Value, ...]:
    """Return the tensors that an operation writes into: its first operand, or all of a list that is the first."""
    name = op.step.op.op
    if name == "setattr":  # weight.data = …
        return op.operands[:1]
    if name.startswith(FOREACH):
        return tuple([value for _, value in leaves(op.step.args[0])]) if op.step.args else ()
    return op.operands[:1] if writes(op) else ()


def drops(op: TimedOp) -> bool:
    """Does an operation set elements to zero at random?"""
    if "dropout" not in op.name:
        return bool(op.step.kwargs.get("dropout_p"))
    if op.step.kwargs.get("p", 1.0) == 0:
        return False
    training = op.step.kwargs.get("training", op.step.args[2] if len(op.step.args) > 2 else True)
    return training is not False


def is_function(op: TimedOp, work: Work) -> bool:
    """Are an operation's results those of its inputs alone, and left as they are?"""
    if writes(op) or op.name in UNFILLED or op.name in DRAWS or drops(op):
        return False
    return not any(v.storage in work.written for v in (*op.operands, *op.results) if v.storage is not None)


def is_view(op: TimedOp) -> bool:
    """Does an operation return the memory of its operands, and compute nothing?"""
    return op.name in VIEWS and {value.storage for value in op.results} <= {value.storage for value in op.operands}


def weight_behind(work: Work, value: Value) -> Value | None:
    """Return the weight that a value is, or shows the memory of: by ``data`` or ``detach``, say."""
    for _ in range(4):
        maker = work.maker.get(value.number)
        if value.name is not None or maker is None or not maker.operands:
            break
        if value.storage != maker.operands[0].storage:
            break
        value = maker.operands[0]
    return value if value.name is not None else None


def costliest(ops: Iterable[TimedOp]) -> TimedOp:
    """Return the operation that takes the most time, the first of equal ones."""
    return max(ops, key=lambda op: (op.seconds, -op.position))


def _seconds(timing: OpTiming | None) -> tuple[float, float]:
    """Return the least of the repeats: a median is wrong where the system interrupts the same operation each time."""
    if timing is None:
        return 0.0, 0.0
    return min(timing.forward, default=0) / 1e9, min(timing.backward, default=0) / 1e9
