"""The time of a run, per call and operation: what takes it, how far it is from the machine's peak, and why.

Times come from repeats that were not traced (:mod:`fxdebug.capture.runs.timed_runs`); the trace says what was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Literal, TypeAlias

from fxdebug.analyses.flops import SELF as FLOPS_SELF
from fxdebug.analyses.flops import CallFlops, count_flops
from fxdebug.analyses.reached_by_backward import Step, steps_of
from fxdebug.data.calls import Call, Note
from fxdebug.data.findings import Finding
from fxdebug.data.measures import CALL, OPERATION, Unit, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.data.timings import MachinePeak, OpTiming, Timings
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.operators.categories import VIEWS
from fxdebug.operators.dtypes import bytes_of
from fxdebug.operators.names import canonical
from fxdebug.query.network import Network, network_of

Bound: TypeAlias = Literal["compute", "memory", "overhead", ""]

SELF = register("time.self", "s", "time in the call itself, without calls in it; untraced", [CALL], adds=True)
TOTAL = register("time.total", "s", "time of the call with all calls in it; untraced", [CALL], adds=True)
TIME = register("time", "s", "median time of the operation; untraced", [OPERATION], adds=True)
BACKWARD = register("time.backward", "s", "median time of the backward pass of it", [CALL, OPERATION], adds=True)
RATE = register("flops.rate", "FLOP/s", "operations per second of its own time", [CALL, OPERATION])
MOVED = register("bytes.moved", "B", "bytes of all operands and results of the own operations", [CALL], adds=True)

OVERHEAD_BELOW = 0.1  # of the time that the peak allows: below this share, neither rate explains the time


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time of one call, in seconds: means over the middle half of the repeats, ``iqr`` the quartiles' distance.

    ``own`` is without the calls in it, ``share`` its part of the run in %. ``backward`` is the backward of all
    operations in the call, ``None`` without a loss. ``rate`` are operations per second of its own time. ``bound`` says
    what limits the own operations: ``compute`` or ``memory`` (the rate of the machine's peak), or ``overhead`` (they
    take more than ten times as long as either rate allows).
    """

    call: str
    type: str
    own: float | None
    share: float | None
    iqr: float | None
    total: float | None
    p95: float | None
    backward: float | None
    rate: float | None
    bound: Bound


@dataclass(frozen=True, slots=True)
class OpRow:
    """All operations of one name: how many, their time together in seconds and in % of all operations' time."""

    op: str
    count: int
    time: float
    share: float | None
    backward: float | None


CALL_COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("own", "self", "s", "without calls in it", adds=True),
    Column("share", "share", "%", "self as a share of the whole run", adds=True),
    Column("iqr", "±IQR", "s", "distance of the quartiles of self", shown=False),
    Column("total", "total", "s", "with all calls in it", adds=True),
    Column("p95", "p95", "s", "of total: 95 of 100 repeats are faster", shown=False),
    Column("backward", "backward", "s", "of all operations in the call", adds=True),
    Column("rate", "rate", "FLOP/s", "operations per second of self"),
    Column("bound", "bound", "", "what limits its own operations"),
)
OP_COLUMNS = (
    Column("op", "operation"),
    Column("count", "count", adds=True),
    Column("time", "time", "s", "median, of all of this name", adds=True),
    Column("share", "share", "%", "of all operations' time", adds=True),
    Column("backward", "backward", "s", "median, of all of this name", adds=True),
)


@dataclass
class CallProfile:
    """One call with its times and the cost of its own operations; ``steps`` with the time of each, where known.

    ``middle`` are the repeats that are neither among the fastest nor the slowest quarter of whole runs. Means over the
    same repeats add up, as medians do not: the self times of all calls are the time of the run.
    """

    call: Call
    flops: CallFlops
    own: list[int]
    total: list[int]
    steps: list[tuple[Step, OpTiming | None]]
    middle: tuple[int, ...] = ()
    children: list[CallProfile] = field(default_factory=list)

    @property
    def own_seconds(self) -> float | None:
        """Time of the call itself: the mean of the middle repeats."""
        return self._seconds(self.own)

    @property
    def total_seconds(self) -> float | None:
        """Time of the call with all calls in it: the mean of the middle repeats."""
        return self._seconds(self.total)

    def _seconds(self, times: list[int]) -> float | None:
        if not times:
            return None
        if not self.middle or len(times) <= max(self.middle):  # a call that not every repeat made
            return median(times) / 1e9
        return sum(times[i] for i in self.middle) / len(self.middle) / 1e9

    @property
    def ops_seconds(self) -> float:
        """Median time of its own operations together."""
        return sum(median(t.forward) for _, t in self.steps if t is not None and t.forward) / 1e9

    @property
    def bytes(self) -> int:
        """Bytes of the operands and results of its own operations; views move none."""
        return sum(bytes_moved(step) for step, _ in self.steps)

    def backward_seconds(self) -> float:
        """Median time of the backward of its operations and of those of all calls in it."""
        own = sum(median(t.backward) for _, t in self.steps if t is not None and t.backward) / 1e9
        return own + sum(child.backward_seconds() for child in self.children)


def profiles(trace: TraceData, timings: Timings) -> list[CallProfile]:
    """Return every call of a trace with its times, in execution order."""
    flops = count_flops(trace)
    middle = _middle_half(timings.calls.get(("", 0), []))
    calls = []
    for call in trace.calls:
        key = call.path, call.number
        steps = steps_of(call) or []
        matched = _matched(steps, timings.ops.get(key, []))
        calls.append(
            CallProfile(call, flops[call.index], timings.own.get(key, []), timings.calls.get(key, []), matched, middle)
        )
        if call.parent_index is not None:
            calls[call.parent_index].children.append(calls[-1])
    return calls


def _middle_half(times: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of the middle half of some times, by size."""
    order = sorted(range(len(times)), key=times.__getitem__)
    quarter = len(order) // 4
    return tuple(sorted(order[quarter : len(order) - quarter]))


def _matched(steps: Iterable[Step], timed: Sequence[OpTiming]) -> list[tuple[Step, OpTiming | None]]:
    """Pair the operations of a graph with the timed ones: both are in execution order, and each has some alone."""
    names = [canonical(timing.name) for timing in timed]
    pairs: list[tuple[Step, OpTiming | None]] = []
    position = 0
    for step in steps:
        try:
            place = names.index(canonical(step.op.op.partition(".")[0]), position)
        except ValueError:
            pairs.append((step, None))
            continue
        pairs.append((step, timed[place]))
        position = place + 1
    return pairs


def bytes_moved(step: Step) -> int:
    """Return the bytes of an operation's operands and results; a view moves none."""
    if canonical(step.op.op) in VIEWS:
        return 0
    seen: dict[int, Value] = {}
    for item in (*step.args, *step.kwargs.values(), step.result):
        seen.update((value.number, value) for _, value in leaves(item))
    return sum(bytes_of(value.dtype, value.shape) for value in seen.values())


# The report --------------------------------------------------------------------------------------


def profile_report(
    trace: TraceData,
    timings: Timings,
    calls: Sequence[CallProfile],
    *,
    peak: MachinePeak | None,
    settings: Mapping[str, Cell],
    items: Items,
    findings: tuple[Finding, ...] = (),
) -> ReportData[ProfileRow]:
    """Return the times of a run per call, the slowest first, with the operations by name as a part.

    ``calls`` are those of :func:`profiles`, ``findings`` those of :mod:`fxdebug.analyses.profile_rules`.
    """
    net = network_of(trace)
    run = median(timings.plain) / 1e9 if timings.plain else None
    root = calls[0].total_seconds
    rows = [_row(net, profile, root, peak, bool(timings.backward)) for profile in calls]
    ops = _op_rows(calls)
    totals: dict[str, tuple[Cell, Unit]] = {"forward": (run, "s")}
    if len(timings.plain) > 3:
        low, _, high = quantiles(timings.plain, n=4)
        totals["IQR"] = ((high - low) / 1e9, "s")
    if timings.backward:
        totals["backward"] = (median(timings.backward) / 1e9, "s")
    if run and items.count:
        totals[f"{items.unit}/s"] = (items.count / run, "")
    if run and (total := calls[0].flops.total.forward):
        totals["rate"] = (total / run, "FLOP/s")
    if peak is not None:
        totals["peak of the machine"] = (peak.flops, "FLOP/s")
        totals["peak of its memory"] = (peak.bytes, "B/s")
    path = critical_path(net, calls)
    if path:
        totals["critical path"] = (path, "s")
    if timings.watched and timings.plain:
        totals["added by timing"] = (100 * (median(timings.watched) / median(timings.plain) - 1), "%")
    return ReportData(
        analysis="profile",
        subject=trace.model,
        columns=CALL_COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: -(row.own or 0.0))),
        totals=totals,
        findings=findings,
        notes=_notes(timings, calls),
        settings=settings,
        spans=tuple(timings.spans),
        measures=_measures(net, calls, rows),
        parts=(ReportData("operations", trace.model, OP_COLUMNS, rows=tuple(ops), settings={"by": "name"}),),
    )


@dataclass(frozen=True, slots=True)
class Items:
    """The number of items that one run processes, for items per second, and their unit: tokens, images, samples."""

    count: int = 0
    unit: str = "samples"


def items_of(trace: TraceData) -> Items:
    """Infer the items of a run from its inputs: tokens of integer ids, images, or the first size of the first tensor.

    >>> import torch, fxdebug
    >>> items_of(fxdebug.fx_debug(torch.nn.Embedding(9, 2), torch.ones(2, 5, dtype=torch.long)))
    Items(count=10, unit='tokens')
    """
    for slot, value in trace.root.inputs.named():
        name = slot.rpartition(".")[2]
        if value.dtype in ("int64", "int32") and (len(value.shape) == 2 or name == "input_ids"):
            return Items(value.numel, "tokens")
        if len(value.shape) == 4:
            return Items(value.shape[0], "images")
        return Items(value.shape[0] if value.shape else 1, "samples")
    return Items()


def _row(
    net: Network, profile: CallProfile, root: float | None, peak: MachinePeak | None, backward: bool
) -> ProfileRow:
    own = profile.own_seconds
    spread = None
    if len(profile.own) > 3:
        low, _, high = quantiles(profile.own, n=4)
        spread = (high - low) / 1e9
    flops = profile.flops.own.forward
    return ProfileRow(
        call=net.call_id(profile.call),
        type=profile.call.type,
        own=own,
        share=100 * own / root if own is not None and root else None,
        iqr=spread,
        total=profile.total_seconds,
        p95=sorted(profile.total)[int(0.95 * (len(profile.total) - 1))] / 1e9 if profile.total else None,
        backward=profile.backward_seconds() if backward else None,
        rate=flops / own if own and flops else None,
        bound=bound_of(profile, peak),
    )


def bound_of(profile: CallProfile, peak: MachinePeak | None) -> Bound:
    """Return what limits a call's own operations (Williams, Waterman, Patterson: Roofline, 2009)."""
    seconds = profile.own_seconds
    if peak is None or not seconds or not profile.steps:
        return ""
    compute, memory = profile.flops.own.forward / peak.flops, profile.bytes / peak.bytes
    if max(compute, memory) < OVERHEAD_BELOW * seconds:
        return "overhead"
    return "compute" if compute >= memory else "memory"


def _op_rows(calls: Iterable[CallProfile]) -> list[OpRow]:
    times: dict[str, list[OpTiming]] = {}
    for profile in calls:
        for step, timing in profile.steps:
            if timing is not None and timing.forward:
                times.setdefault(step.op.op, []).append(timing)
    whole = sum(median(timing.forward) for group in times.values() for timing in group)
    rows = [
        OpRow(
            op=name,
            count=len(group),
            time=(time := sum(median(timing.forward) for timing in group)) / 1e9,
            share=100 * time / whole if whole else None,
            backward=_backward_of(group),
        )
        for name, group in times.items()
    ]
    return sorted(rows, key=lambda row: -row.time)


def _backward_of(group: Iterable[OpTiming]) -> float | None:
    times = [median(timing.backward) for timing in group if timing.backward]
    return sum(times) / 1e9 if times else None


def critical_path(net: Network, calls: Sequence[CallProfile]) -> float:
    """Return the seconds of the slowest chain of operations that depend on one another."""
    seconds = {
        f"{net.call_id(profile.call)}/{step.op.name}": median(timing.forward) / 1e9
        for profile in calls
        for step, timing in profile.steps
        if timing is not None and timing.forward
    }
    finished: dict[str, float] = {}
    for node in sorted(net.nodes.values(), key=lambda node: node.position):
        before = max((finished.get(edge.source, 0.0) for edge in net.into.get(node.id, ())), default=0.0)
        finished[node.id] = before + seconds.get(node.id, 0.0)
    return max(finished.values(), default=0.0)


def _measures(net: Network, calls: Sequence[CallProfile], rows: Sequence[ProfileRow]) -> dict[str, dict[str, float]]:
    by_call: dict[str, dict[str, float | None]] = {
        SELF.name: {row.call: row.own for row in rows},
        TOTAL.name: {row.call: row.total for row in rows},
        RATE.name: {row.call: row.rate for row in rows},
        BACKWARD.name: {row.call: row.backward for row in rows},
        FLOPS_SELF.name: {net.call_id(p.call): float(p.flops.own.forward) for p in calls},
        MOVED.name: {net.call_id(p.call): float(p.bytes) for p in calls},
    }
    measures: dict[str, dict[str, float]] = {
        name: {id: x for id, x in numbers.items() if x is not None} for name, numbers in by_call.items()
    }
    times, backward, rates = measures.setdefault(TIME.name, {}), measures[BACKWARD.name], measures[RATE.name]
    for profile in calls:
        prefix = net.call_id(profile.call)
        flops = {op.node: op.flops for op in profile.flops.ops}
        for step, timing in profile.steps:
            if timing is None or not timing.forward:
                continue
            id = f"{prefix}/{step.op.name}"
            times[id] = seconds = median(timing.forward) / 1e9
            if timing.backward:
                backward[id] = median(timing.backward) / 1e9
            counted = flops.get(id)
            if counted is not None and counted.forward and seconds:
                rates[id] = counted.forward / seconds
    return measures


def _notes(timings: Timings, calls: Sequence[CallProfile]) -> tuple[Note, ...]:
    notes = []
    untimed = [profile for profile in calls if not profile.total]
    if untimed:
        names = ", ".join(profile.call.id for profile in untimed[:3]) + (", …" if len(untimed) > 3 else "")
        notes.append(Note(f"{len(untimed)} calls ran in the trace and in no repeat, or were made in forward: {names}"))
    if timings.elsewhere:
        notes.append(
            Note(f"{timings.elsewhere} calls ran in other threads: the call that waits for them has their time")
        )
    missing = sum(timing is None for profile in calls for _, timing in profile.steps)
    if missing:
        notes.append(Note(f"{missing} operations have no time: parts of results, and operations in fused kernels"))
    return tuple(notes)
