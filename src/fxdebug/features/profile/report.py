"""The time of a run, per call and operation: what takes it, how far it is from the machine's peak, and why.

Times come from repeats that were not traced (:mod:`fxdebug.features.shared.times.timed_runs`); the trace says what was
computed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median, quantiles
from typing import Literal, TypeAlias

from fxdebug.analyses.cost.flops import SELF as FLOPS_SELF
from fxdebug.analyses.cost.flops import CallFlops, bound, count_flops, not_counted
from fxdebug.analyses.cost.reached_by_backward import Step, steps_of
from fxdebug.data.calls import Call, Note
from fxdebug.data.findings import Finding
from fxdebug.data.measured.timings import MachinePeak, OpTiming, RegionTiming, Timings, path_or_model
from fxdebug.data.measures import CALL, OPERATION, Unit, counted, quantity, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, leaves
from fxdebug.operators.categories import VIEWS
from fxdebug.operators.names import canonical
from fxdebug.query.measures import size_of
from fxdebug.query.network import Network, network_of

Bound: TypeAlias = Literal["compute", "memory", "overhead", ""]

OWN = "time in the call itself, without calls in it, or in the operation; untraced"
SELF = register("time.self", "s", OWN, [CALL, OPERATION], adds=True, own=True)
TOTAL = register("time.total", "s", "time with all calls in it; untraced", [CALL, OPERATION], adds=True)
BACKWARD = register("time.backward", "s", "median time of the backward pass of it", [CALL, OPERATION], adds=True)
RATE = register("flops.rate", "FLOP/s", "operations per second of its own time", [CALL, OPERATION])
MOVED = register("bytes.moved", "B", "bytes of operands and results of the own operations", [CALL], adds=True, own=True)

MUCH_LOSS = 40.0  # % of a step in the loss: from here on the model is not what to look at
UNSTEADY = 20.0  # %: where half of the repeats spread over more than this share of their median, times are uncertain
OVERHEAD_BELOW = 0.1  # of the time that the peak allows: below this share, neither rate explains the time


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time of one call or region, in seconds: medians over the repeats.

    ``own`` is without the calls and regions in it, ``share`` its part of the run in %; ``least``, ``median``, ``low``
    and ``high`` (the quartiles) and ``iqr`` (their distance) are of ``own``, ``p95`` of ``total``. ``backward`` is the
    backward of all operations in the call, ``None`` without a loss. ``flops`` and ``bytes`` are those of the own
    operations, ``None`` where that of one is not known, and ``rate`` its ``flops`` per second of own time. ``bound``
    says what limits the own operations: ``compute`` or ``memory`` (the rate of the machine's peak), or ``overhead``
    (they take more than ten times as long as either rate allows). The last four are about calls; a region has a path
    such as ``h.0.attn/scores``, and the type ``region``.
    """

    call: str
    type: str
    own: float | None
    share: float | None
    least: float | None
    median: float | None
    low: float | None
    high: float | None
    iqr: float | None
    total: float | None
    p95: float | None
    backward: float | None
    flops: int | None
    bytes: int | None
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
    Column("own", "self", "s", "without calls and regions in it", adds=True),
    Column("share", "share", "%", "self as a share of the whole run", adds=True),
    Column("least", "least", "s", "of self: the fastest repeat", shown=False),
    Column("median", "median", "s", "of self", adds=True, shown=False),
    Column("low", "low", "s", "of self: a quarter of the repeats is faster", shown=False),
    Column("high", "high", "s", "of self: a quarter of the repeats is slower", shown=False),
    Column("iqr", "±IQR", "s", "distance of the quartiles of self", shown=False),
    Column("total", "total", "s", "with all calls in it", adds=True),
    Column("p95", "p95", "s", "of total: 95 of 100 repeats are faster", shown=False),
    Column("backward", "backward", "s", "of all operations in the call", adds=True),
    Column("flops", "FLOP", "FLOP", "of its own operations, forward", adds=True, shown=False),
    Column("bytes", "bytes", "B", "of the operands and results of its own operations", adds=True, shown=False),
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

    ``least`` is the least own time in any repeat, of those that time operations, too: what is there in each of them is
    no disturbance.
    """

    call: Call
    flops: CallFlops
    own: list[int]
    total: list[int]
    steps: list[tuple[Step, OpTiming | None]]
    least: int = 0
    children: list[CallProfile] = field(default_factory=list)
    regions: list[RegionTiming] = field(default_factory=list)

    @property
    def own_seconds(self) -> float | None:
        """Median time of the call itself, with regions in it."""
        return seconds_of(self.own)

    @property
    def own_without_regions(self) -> list[int]:
        """Nanoseconds of the call itself in every repeat, without the regions in it."""
        inside = [region.own for region in self.regions if len(region.own) == len(self.own)]
        return [max(0, own - sum(times)) for own, *times in zip(self.own, *inside)]

    @property
    def total_seconds(self) -> float | None:
        """Time of the call with all calls in it: the sum of the medians of their own times.

        A repeat in which the machine was busy elsewhere disturbs some calls; the median of each is not touched by it.
        """
        own = seconds_of(self.own_without_regions)
        if own is None:
            return None
        regions = sum(seconds_of(region.own) or 0.0 for region in self.regions)
        return own + regions + sum(child.total_seconds or 0.0 for child in self.children)

    @property
    def ops_seconds(self) -> float:
        """Median time of its own operations together."""
        return sum(median(t.forward) for _, t in self.steps if t is not None and t.forward) / 1e9

    @property
    def bytes(self) -> int | None:
        """Bytes of the operands and results of its own operations; views move none. ``None``: of one not known."""
        sizes = [size for step, _ in self.steps if (size := bytes_moved(step)) is not None]
        return sum(sizes) if len(sizes) == len(self.steps) else None

    @property
    def own_flops(self) -> int | None:
        """Its own operations, forward; ``None`` where the number of one is not known."""
        return None if self.flops.unknown else self.flops.own.forward

    def backward_seconds(self) -> float:
        """Median time of the backward of its operations and of those of all calls in it."""
        own = sum(median(t.backward) for _, t in self.steps if t is not None and t.backward) / 1e9
        return own + sum(child.backward_seconds() for child in self.children)


def profiles(trace: TraceData, timings: Timings) -> list[CallProfile]:
    """Return every call of a trace with its times, in execution order."""
    flops = count_flops(trace)
    calls = []
    for call in trace.calls:
        key = call.path, call.number
        steps = steps_of(call) or []
        matched = _matched(steps, timings.ops.get(key, []))
        own, total = timings.own.get(key, []), timings.calls.get(key, [])
        least = timings.least.get(key, min(own, default=0))
        calls.append(CallProfile(call, flops[call.index], own, total, matched, least))
        if call.parent_index is not None:
            calls[call.parent_index].children.append(calls[-1])
    by_key = {(profile.call.path, profile.call.number): profile for profile in calls}
    for region in timings.regions.values():
        if region.call in by_key:
            by_key[region.call].regions.append(region)
    return calls


def seconds_of(times: Sequence[int]) -> float | None:
    """Return the median of nanoseconds, in seconds."""
    return median(times) / 1e9 if times else None


def _matched(steps: Iterable[Step], timed: Sequence[OpTiming]) -> list[tuple[Step, OpTiming | None]]:
    """Pair the operations of a graph with the timed ones: both are in execution order, and each has some alone."""
    names = [canonical(timing.name) for timing in timed]
    pairs: list[tuple[Step, OpTiming | None]] = []
    position = 0
    for step in steps:
        if step.op.op == "getitem" and step.args and isinstance(step.args[0], Group):  # of a tuple: Python's own
            pairs.append((step, None))
            continue
        try:
            place = names.index(canonical(step.op.op.partition(".")[0]), position)
        except ValueError:
            pairs.append((step, None))
            continue
        pairs.append((step, timed[place]))
        position = place + 1
    return pairs


def bytes_moved(step: Step) -> int | None:
    """Return the bytes of an operation's operands and results; ``None`` where one is not known. A view moves none."""
    results = [value for _, value in leaves(step.result)]
    seen = {value.number: value for item in (*step.args, *step.kwargs.values()) for _, value in leaves(item)}
    if canonical(step.op.op) in VIEWS and {one.storage for one in results} <= {one.storage for one in seen.values()}:
        return 0
    seen.update((value.number, value) for value in results)
    sizes = [size for value in seen.values() if (size := size_of(value)) is not None]
    return sum(sizes) if len(sizes) == len(seen) else None


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

    ``calls`` are those of :func:`profiles`, ``findings`` those of :mod:`fxdebug.features.profile.findings`.
    """
    net = network_of(trace)
    root = calls[0].total_seconds
    peak = _reached(peak, calls)
    rows = [_row(net, profile, root, peak, timings) for profile in calls]
    lengths = {(span.path, span.number): (span.end - span.begin) / 1e9 for span in timings.spans}
    regions = [_region_row(trace.model, key, each, root, lengths.get(key)) for key, each in timings.regions.items()]
    columns: tuple[Column, ...] = CALL_COLUMNS
    if timings.missing:  # what is known without a time takes its place on the screen
        columns = tuple([replace(c, shown=c.shown or c.field in ("flops", "bytes")) for c in CALL_COLUMNS])
    return ReportData(
        analysis="profile",
        subject=trace.model,
        answer=_answer(timings, calls, findings),
        columns=columns,
        rows=tuple(sorted([*rows, *regions], key=lambda row: (-(row.own or 0.0), -(row.flops or 0)))),
        totals=_totals(timings, calls, peak, items, critical_path(net, calls)),
        at_least=_lower_bounds(calls),
        ranked_by=("own",),
        findings=findings,
        notes=_notes(timings, calls),
        settings=settings,
        spans=tuple(timings.spans),
        measures=_measures(net, calls, rows),
        parts=(
            ReportData(
                "operations",
                trace.model,
                OP_COLUMNS,
                rows=tuple(_op_rows(calls)),
                settings={"by": "name"},
                ranked_by=("time",),
            ),
        ),
    )


MOSTLY_OPERATIONS = 0.5  # of the fastest forward: where operations take less, the answer says so


def _answer(timings: Timings, calls: Sequence[CallProfile], findings: Sequence[Finding]) -> str:
    """Return what takes the time: the first finding, or the operation with the largest share."""
    if findings:
        first = findings[0]
        more = f" ({counted(len(findings) - 1, 'more finding')} below)" if len(findings) > 1 else ""
        where = f", at {first.source.rpartition('/')[2]}" if first.source else ""
        return f"{first.what.rstrip('.')}{where}{more}."
    of_loss = _of_loss(timings, calls)
    if of_loss is not None:
        return (
            f"The loss takes {of_loss:.0f} % of a step and was not looked into (profile a module that returns it); "
            "no rule tells of waste in the model."
        )
    operation = max(_op_rows(calls), key=lambda row: row.time, default=None)
    if not timings.plain:
        return ""
    taken = f"A forward takes {quantity(median(timings.plain) / 1e9, 's')}"
    if operation is None or operation.share is None:
        return f"{taken}; none of its operations has a time of its own."
    of_ops, least = sum(profile.ops_seconds for profile in calls), min(timings.plain) / 1e9
    if of_ops < MOSTLY_OPERATIONS * least:
        worked = median(timings.processor) / 1e9 if timings.processor else least
        rest = "Python, or operations that were not seen"
        if of_ops >= MOSTLY_OPERATIONS * worked:  # others had the processor, or it waited
            rest = f"waiting: processors worked for {quantity(worked, 's')}"
        taken += f", its operations {quantity(of_ops, 's')}; the rest is {rest}"
    most = f"{quantity(operation.share, '%')} of what its operations take is for {operation.op} × {operation.count}"
    return f"{taken}; {most}{_at_line(calls)}; no rule tells of waste there."


def _at_line(calls: Sequence[CallProfile]) -> str:
    """Return the line that takes the most time, with its share, for a sentence; nothing where no line is known."""
    times: defaultdict[str, float] = defaultdict(float)
    whole = 0.0
    for profile in calls:
        graph, body = profile.call.graph, profile.call.body
        sources = {} if graph is None or body is None else dict(zip([op.name for op in graph.ops], body.sources))
        for step, timing in profile.steps:
            seconds = median(timing.forward) if timing is not None and timing.forward else 0.0
            whole += seconds
            line = sources.get(step.op.name) or profile.call.source
            if line:
                times[line] += seconds
    if not times or not whole:
        return ""
    line = max(times, key=lambda line: times[line])
    return f", and {100 * times[line] / whole:.0f} % for {line.rpartition('/')[2]}"


def forward_share(timings: Timings) -> float:
    """Return the part of a step that is its forward: 1.0 where there is no backward."""
    whole = sum(median(times) for times in (timings.plain, timings.loss, timings.backward) if times)
    return median(timings.plain) / whole if timings.plain and whole else 1.0


def _of_loss(timings: Timings, calls: Sequence[CallProfile]) -> float | None:
    """Return the share of a step (%) in the loss and its part of the backward; ``None`` below ``MUCH_LOSS``."""
    if not timings.backward or not timings.loss:
        return None
    of_model = sum(median(t.backward) for profile in calls for _, t in profile.steps if t is not None and t.backward)
    forward, loss, backward = (median(times) for times in (timings.plain, timings.loss, timings.backward))
    share = 100 * (loss + max(0.0, backward - of_model)) / (forward + loss + backward)
    return share if share >= MUCH_LOSS else None


def _totals(
    timings: Timings, calls: Sequence[CallProfile], peak: MachinePeak | None, items: Items, path: float
) -> dict[str, tuple[Cell, Unit]]:
    run = median(timings.plain) / 1e9 if timings.plain else None
    low, high = quartiles(timings.plain)
    totals: dict[str, tuple[Cell, Unit]] = {"forward": (run, "s")}
    if low is not None and high is not None:
        totals["IQR"] = (high - low, "s")
        totals["p95"] = (percentile_95(timings.plain), "s")
    if timings.backward:
        totals["loss"] = (median(timings.loss) / 1e9, "s")
        totals["backward"] = (median(timings.backward) / 1e9, "s")
    if run and items.count:
        totals[f"{items.unit}/s"] = (items.count / run, "")
    flops = bound(calls[0].flops.total.forward, calls[0].flops.inside)
    if timings.missing:
        totals["operations"] = (flops, "FLOP")
        totals["moved"] = (sum(profile.bytes or 0 for profile in calls) or None, "B")
    if run and flops:
        totals["rate"] = (flops / run, "FLOP/s")
    if timings.plain and timings.processor:
        totals["processor use"] = (100 * sum(timings.processor) / sum(timings.plain), "%")
    use = timings.device_use
    totals["GPU use"] = (mean(use) if use else None, "%")
    if use:
        totals["GPU use, most"] = (max(use), "%")
    if peak is not None:
        totals["peak of the machine"] = (peak.flops, "FLOP/s")
        totals["peak of its memory"] = (peak.bytes, "B/s")
    if path:
        totals["critical path"] = (path, "s")
    if timings.watched and timings.plain:
        added = 100 * (median(timings.watched) / median(timings.plain) - 1)
        totals["added by timing"] = (added if added >= 0 else None, "%")  # less than the repeats scatter
    return totals


def _lower_bounds(calls: Sequence[CallProfile]) -> tuple[str, ...]:
    """Return the totals of which a part is not known."""
    of_operations = ("operations", "rate") if calls[0].flops.inside else ()
    return (*of_operations, *(["moved"] if any(profile.bytes is None for profile in calls) else []))


def _reached(peak: MachinePeak | None, calls: Sequence[CallProfile]) -> MachinePeak | None:
    """Return the peak, or the rate of the fastest call where that is larger: the machine was busy when it was taken."""
    rates = [(p.own_flops or 0) / seconds for p in calls if (seconds := p.own_seconds)]
    return None if peak is None else replace(peak, flops=max([peak.flops, *rates]))


def quartiles(times: Sequence[int]) -> tuple[float | None, float | None]:
    """Return the first and the third quartile of nanoseconds, in seconds; ``None`` for fewer than two.

    >>> quartiles([1, 2, 3, 4, 5])
    (2e-09, 4e-09)
    """
    if len(times) < 2:
        return None, None
    low, _, high = quantiles(times, n=4, method="inclusive")
    return low / 1e9, high / 1e9


def percentile_95(times: Sequence[int]) -> float | None:
    """Return the seconds than which 95 of 100 repeats are faster, or as fast; of fewer than 20 the slowest.

    >>> percentile_95(range(1, 101)), percentile_95([1, 2, 9])
    (9.5e-08, 9e-09)
    """
    return sorted(times)[math.ceil(0.95 * len(times)) - 1] / 1e9 if times else None


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
    net: Network, profile: CallProfile, root: float | None, peak: MachinePeak | None, timings: Timings
) -> ProfileRow:
    own = seconds_of(profile.own_without_regions)
    whole = profile.own_seconds
    low, high = quartiles(profile.own_without_regions)
    flops = profile.own_flops
    return ProfileRow(
        call=net.call_id(profile.call),
        type=profile.call.type,
        own=own,
        share=100 * own / root if own is not None and root else None,
        least=min(profile.own_without_regions) / 1e9 if profile.own else None,
        median=median(profile.own_without_regions) / 1e9 if profile.own else None,
        low=low,
        high=high,
        iqr=high - low if low is not None and high is not None else None,
        total=profile.total_seconds,
        p95=percentile_95(profile.total),
        backward=profile.backward_seconds() if timings.backward else None,
        flops=flops,
        bytes=profile.bytes,
        rate=flops / whole if whole and flops else None,
        bound=bound_of(profile, peak),
    )


def _region_row(
    model: str, key: tuple[str, int], region: RegionTiming, root: float | None, total: float | None
) -> ProfileRow:
    own = seconds_of(region.own)
    low, high = quartiles(region.own)
    return ProfileRow(
        call=f"{path_or_model(key[0], model)}#{key[1]}",
        type="region",
        own=own,
        share=100 * own / root if own is not None and root else None,
        least=min(region.own) / 1e9 if region.own else None,
        median=median(region.own) / 1e9 if region.own else None,
        low=low,
        high=high,
        iqr=high - low if low is not None and high is not None else None,
        total=total if total is not None else seconds_of(region.total),
        p95=percentile_95(region.total),
        backward=median(region.backward) / 1e9 if region.backward else None,
        flops=None,
        bytes=None,
        rate=None,
        bound="",
    )


def bound_of(profile: CallProfile, peak: MachinePeak | None) -> Bound:
    """Return what limits a call's own operations (Williams, Waterman, Patterson: Roofline, 2009)."""
    seconds = profile.least / 1e9  # other work on the machine limits no operation
    if peak is None or not seconds or not profile.steps:
        return ""
    flops, moved = profile.own_flops, profile.bytes
    if flops is None or moved is None:
        return ""
    compute, memory = flops / peak.flops, moved / peak.bytes
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
        SELF.name: {net.call_id(p.call): p.own_seconds for p in calls},
        TOTAL.name: {row.call: row.total for row in rows},
        RATE.name: {row.call: row.rate for row in rows},
        BACKWARD.name: {row.call: row.backward for row in rows},
        FLOPS_SELF.name: {net.call_id(p.call): p.own_flops for p in calls},
        MOVED.name: {net.call_id(p.call): p.bytes for p in calls},
    }
    measures: dict[str, dict[str, float]] = {
        name: {id: x for id, x in numbers.items() if x is not None} for name, numbers in by_call.items()
    }
    own, total, backward, rates = (measures[m.name] for m in (SELF, TOTAL, BACKWARD, RATE))
    for profile in calls:
        prefix = net.call_id(profile.call)
        flops = {op.node: op.flops for op in profile.flops.ops}
        for step, timing in profile.steps:
            if timing is None or not timing.forward:
                continue
            id = f"{prefix}/{step.op.name}"
            own[id] = total[id] = seconds = median(timing.forward) / 1e9
            if timing.backward:
                backward[id] = median(timing.backward) / 1e9
            counted = flops.get(id)
            if counted is not None and counted.forward and seconds:
                rates[id] = counted.forward / seconds
    return measures


def _on_scatter(timings: Timings) -> Iterator[Note]:
    """Yield notes where the repeats spread so far that the times say little."""
    low, high = quartiles(timings.plain)
    middle, timed = seconds_of(timings.plain), seconds_of(timings.watched)
    reason = "the machine did other work, or its clock changed"
    if timed and middle and 100 * (middle - timed) >= UNSTEADY * middle:
        took = f"plain repeats took {quantity(middle, 's')} and those whose calls are timed {quantity(timed, 's')}"
        yield Note(f"times are uncertain: {took}; {reason}")
    elif low is not None and high is not None and middle and 100 * (high - low) >= UNSTEADY * middle:
        took = f"half of the repeats took {quantity(low, 's')} to {quantity(high, 's')}"
        yield Note(f"times are uncertain by ±{50 * (high - low) / middle:.0f} %: {took}; {reason}")
    if timings.watched and middle and median(timings.watched) < median(timings.plain):
        yield Note("added by timing: n/a, it is less than the repeats differ by")


def _notes(timings: Timings, calls: Sequence[CallProfile]) -> tuple[Note, ...]:
    notes = not_counted(calls[0].flops.inside)
    if timings.missing:
        return (Note(f"times: n/a, {timings.missing}"), *notes)
    notes = [*_on_scatter(timings), *notes]
    if timings.error:
        notes.insert(0, Note(f"the model raised: these are the times until then ({timings.error})"))
    if (of_loss := _of_loss(timings, calls)) is not None:
        notes.append(Note(f"the loss, with its part of the backward, takes {of_loss:.0f} % of a step: not looked into"))
    if not timings.device_use:
        notes.append(Note(f"GPU use: n/a ({timings.no_device_use})"))
    untimed = [profile for profile in calls if not profile.total]
    if untimed:
        names = ", ".join(profile.call.id for profile in untimed[:3]) + (", …" if len(untimed) > 3 else "")
        what = f"{counted(len(untimed), 'call')} of the trace ran in no repeat, or were made in forward: {names}"
        notes.append(Note(what))
    if timings.elsewhere:
        notes.append(
            Note(f"calls ran in other threads ({timings.elsewhere}): the call that waits for them has their time")
        )
    missing = sum(timing is None for profile in calls for _, timing in profile.steps)
    notes += [Note(text) for text in timings.notes]
    if missing:
        notes.append(Note(f"without a time: {counted(missing, 'operation')}, parts of results or in fused kernels"))
    return tuple(notes)
