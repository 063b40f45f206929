"""Findings of a profile: what takes time without need, with the evidence; no rule predicts a gain."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from fxdebug.analyses.cost.reached_by_backward import Step
from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.measures import quantity
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.features.profile.report import CallProfile, bytes_moved
from fxdebug.features.profile.wasted import wasted
from fxdebug.features.profile.wasted.surroundings import Surroundings
from fxdebug.features.profile.wasted.timed_ops import Work
from fxdebug.features.profile.wasted.unused_results import made_for_reads
from fxdebug.operators.categories import SIZED_BY_NUMBERS, SOFTMAXES, TO_PYTHON_NUMBERS
from fxdebug.operators.names import canonical
from fxdebug.query.network import network_of

Weighed: TypeAlias = tuple[float, Finding]  # the share of the time at stake in %, and the finding


@dataclass(frozen=True)
class Limits:
    """Thresholds of the rules.

    ``slow_share``, ``slow_ratio``: a call is slow from this share of the run (%), if its fastest repeat takes this
    many times its siblings' median and ``slow_seconds`` more. ``idle_seconds``, ``idle_share``: a call idles from this
    time outside of torch's functions, and this share of its own time (%). ``sync_count``: reads of numbers, or tensors
    whose size depends on numbers, at one line: in a run on an accelerator, where each waits for the device; on the CPU,
    where it costs little, in the calls of one module.
    ``wide_share``: share of all operations' time or bytes in float64 (%), where most parameters are narrower.
    ``eager_share``: share of all operations' time in attention that is written out (%).
    ``waste_share``: share of all operations' time that is at stake (%), where work is done without need.
    """

    slow_share: float = 10.0
    slow_ratio: float = 3.0
    slow_seconds: float = 1e-4
    idle_seconds: float = 5e-3
    idle_share: float = 50.0
    sync_count: int = 3
    wide_share: float = 5.0
    eager_share: float = 2.0
    waste_share: float = 8.0


def findings_of(
    trace: TraceData,
    calls: Sequence[CallProfile],
    limits: Limits,
    fastest: float = math.inf,
    around: Surroundings | None = None,
    of_forward: float = 1.0,
) -> tuple[Weighed, ...]:
    """Return the findings of a profile, each after the share of the time at stake, the largest share first.

    ``fastest`` are the seconds of the fastest run that nothing watched: nothing in it takes longer. ``around`` is what
    the run was given besides the model. ``of_forward`` is the part of a step that is its forward.
    """
    whole = sum(profile.ops_seconds for profile in calls)
    root = calls[0].total_seconds
    around = around or Surroundings()
    work = Work(trace, calls, has_loss=around.has_loss)
    found = [
        *_slow_siblings(trace, calls, root or 0.0, limits),
        *_idle(trace, calls, root or 0.0, limits, fastest),
        *_single_numbers(work, whole, limits),
        *_wide(trace, calls, whole, limits),
        *_written_out_attention(trace, calls, whole, limits),
        *((f.measured or 0.0, f) for f in wasted(work, around, limits.waste_share)),
        *_recomputed(trace, calls, around, of_forward, limits),
    ]
    return tuple(sorted(found, key=lambda one: -one[0]))


def _slow_siblings(trace: TraceData, calls: Sequence[CallProfile], root: float, limits: Limits) -> Iterator[Weighed]:
    """Calls that take several times as long as calls of the same class on tensors of the same shapes."""
    net = network_of(trace)
    groups: defaultdict[tuple[object, ...], list[CallProfile]] = defaultdict(list)
    for profile in calls:
        shapes = tuple([value.label for value in profile.call.inputs])
        parameters = tuple([value.label for step, _ in profile.steps for value in _parameters(step.args)])
        groups[profile.call.type, shapes, parameters].append(profile)
    for group in groups.values():
        owns = [profile.own_seconds for profile in group]
        times = sorted([own for own in owns if own is not None])
        if len(times) < 2 or not root:
            continue
        for profile, own in zip(group, owns):
            if own is None:
                continue
            usual = _median_of_others(times, own)
            least = profile.least / 1e9
            is_slow = least >= limits.slow_ratio * usual and least >= usual + limits.slow_seconds
            if is_slow and 100 * own / root >= limits.slow_share:
                yield (
                    100 * own / root,
                    Finding(
                        rule="slow",
                        severity=WARNING,
                        path=profile.call.path,
                        call=net.call_id(profile.call),
                        op=profile.call.type,
                        what=f"takes {quantity(own, 's')} itself, {100 * own / root:.0f} % of the run; "
                        f"the same work takes {quantity(usual, 's')} in {len(times) - 1} other calls",
                        source=profile.call.source,
                        measured=own / usual,
                        threshold=limits.slow_ratio,
                        advice="What does its forward do besides its operations, and are there hooks on it?",
                    ),
                )


def _median_of_others(ordered: Sequence[float], one: float) -> float:
    """Return the median of sorted numbers without one of them: it is asked about each of 10,000 equal calls.

    >>> _median_of_others([1.0, 2.0, 3.0, 9.0], 9.0), _median_of_others([1.0, 2.0, 3.0], 2.0)
    (2.0, 2.0)
    """
    position, rest = bisect_left(ordered, one), len(ordered) - 1
    low, high = [ordered[i + (i >= position)] for i in ((rest - 1) // 2, rest // 2)]
    return (low + high) / 2


LITTLE = 1e-3  # seconds outside of torch's functions: fewer are the Python of any forward
NEARLY_ALL = 0.9  # of the time of a call: from here on few operations hide that it does other work


def _idle(
    trace: TraceData, calls: Sequence[CallProfile], root: float, limits: Limits, fastest: float
) -> Iterator[Weighed]:
    """Calls whose own time is mostly not spent in torch: Python code, input and output, waiting."""
    net = network_of(trace)
    whole = sum(profile.ops_seconds for profile in calls)
    for profile in calls:
        own = profile.own_seconds
        if own is None or profile.call.status == "opaque":
            continue
        if any(timing is None and step.op.op != "getitem" for step, timing in profile.steps):
            continue  # an operation without a time may have taken it
        outside = min(profile.least / 1e9 - profile.ops_seconds, fastest - whole)  # others may have been disturbed
        nearly_all = outside >= LITTLE and outside * 1e9 >= NEARLY_ALL * profile.least
        if (outside >= limits.idle_seconds and 100 * outside / own >= limits.idle_share) or nearly_all:
            yield (
                100 * outside / root if root else 0.0,
                Finding(
                    rule="outside torch",
                    severity=WARNING,
                    path=profile.call.path,
                    call=net.call_id(profile.call),
                    op=profile.call.type,
                    what=f"{quantity(outside, 's')} of its own {quantity(own, 's')} are outside of torch's functions: "
                    "Python code, files, or waiting",
                    source=profile.call.source if profile.call.path else None,  # that of the model is the caller's
                    measured=outside,
                    threshold=limits.idle_seconds,
                    unit="s",
                    advice="Could this work be done outside of forward? A profiler of Python shows what it is.",
                ),
            )


def _single_numbers(work: Work, whole: float, limits: Limits) -> Iterator[Weighed]:
    """Lines that read numbers out of tensors again and again, those that take the most time first.

    Each waits for the device. What is computed for the numbers alone counts with them, such as statistics in hooks.
    """
    lines: defaultdict[str, list[tuple[CallProfile, str, str]]] = defaultdict(list)
    times: defaultdict[str, float] = defaultdict(float)
    on_device = False
    for profile in work.calls:
        body = profile.call.body
        graph = profile.call.graph
        if body is None or graph is None:
            continue
        sources = dict(zip([op.name for op in graph.ops], body.sources))
        grouped = _grouping_lines(profile, sources)
        for step, timing in profile.steps:
            source = sources.get(step.op.name)
            if source and source not in grouped and waits_for_numbers(step):
                times[source] += median(timing.forward) / 1e9 if timing is not None and timing.forward else 0.0
                lines[source].append((profile, step.op.op, f"{work.call_id[profile.call.index]}/{step.op.name}"))
                on_device |= any(value.device not in ("cpu", "meta") for arg in step.args for _, value in leaves(arg))
    made: defaultdict[str, float] = defaultdict(float)
    for op, source in made_for_reads(work).items():
        made[source] += 0.0 if waits_for_numbers(op.step) else op.seconds
    for source, reads in sorted(lines.items(), key=lambda line: (-times[line[0]] - made[line[0]], -len(line[1]))):
        seconds = times[source] + made[source]
        of_module = max(Counter(profile.call.path for profile, _, _ in reads).values())
        if (len(reads) if on_device else of_module) < limits.sync_count:
            continue
        if not on_device and seconds < READS * whole and len(reads) < MANY_READS:
            continue
        profile, name, node = reads[0]
        ways = ", ".join(dict.fromkeys(_MASKED.get(canonical(op), op) for _, op, _ in reads))
        share = 100 * seconds / whole if whole else 0.0
        with_made = ", with what is computed for them alone," if made[source] > times[source] else ""
        needed = " Are they needed in each run?" if share >= limits.waste_share and with_made else ""
        yield (
            share,
            Finding(
                rule="reads numbers",
                severity=ADVICE,
                path=profile.call.path,
                call=work.call_id[profile.call.index],
                op=name,
                node=node,
                what=f"this line reads numbers out of tensors {len(reads)} times in a run ({ways}), which{with_made} "
                f"takes {_share(seconds, whole)} of the time; on an accelerator each waits until "
                "all work before it is done",
                source=source,
                measured=len(reads),
                threshold=limits.sync_count,
                advice=f"Could the numbers stay in tensors, or be read once for all?{needed}",
                others=tuple([other for _, _, other in reads[1:]]),
            ),
        )


def _grouping_lines(profile: CallProfile, sources: Mapping[str, str | None]) -> set[str]:
    """Lines that read which rows an expert gets: once for each module, or slice of a weight, that then takes them.

    A mixture of experts is grouped so; the size of a group is a number that each of them needs.
    """
    reads = Counter(sources.get(step.op.name) or "" for step, _ in profile.steps if waits_for_numbers(step))
    experts = len({child.call.path for child in profile.children if _has_weights(child)})
    sliced = [str(s.args[1]) for s, _ in profile.steps if s.op.op == "getitem" and any(_parameters(s.args[:1]))]
    most = max(experts, len(set(sliced)))
    return {line for line, count in reads.items() if SINGLE_READ < count <= most}


SINGLE_READ = 1
READS = 0.001  # of the time on a CPU, where nothing else waits for a read: below, a few reads are no cause
MANY_READS = 12  # from here on they would be one on an accelerator


def _has_weights(profile: CallProfile) -> bool:
    inside = any(value for step, _ in profile.steps for value in _parameters((*step.args, *step.kwargs.values())))
    return inside or any(_has_weights(child) for child in profile.children)


def _share(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole:.0f} %" if whole else "n/a"


def waits_for_numbers(step: Step) -> bool:
    """Does an operation need numbers of a tensor in Python: to return them, or to know the size of its result?"""
    name, args = canonical(step.op.op.partition(".")[0]), step.args
    if name in NUMBERS_TO_PYTHON and not isinstance(step.result, Value):  # x.float() is a conversion
        return True
    if name in ("getitem", "setitem", "index", "index_put"):
        index = args[1] if len(args) > 1 else None
        is_mask = any(value.dtype in ("bool", "uint8") for _, value in leaves(index))
        fills = len(args) > 2 and not (isinstance(args[2], Value) and args[2].shape)  # one number: nothing is counted
        return is_mask and not fills
    if name == "where":
        return len(args) + len(step.kwargs) == 1
    if name == "repeat_interleave":
        repeats = args[1] if len(args) > 1 else step.kwargs.get("repeats")
        return isinstance(repeats, Value) and step.kwargs.get("output_size") is None
    return name in SIZED_BY_NUMBERS


_MASKED = dict.fromkeys(("getitem", "setitem", "index", "index_put"), "a tensor of booleans as an index")
NUMBERS_TO_PYTHON = TO_PYTHON_NUMBERS | {"bool", "int", "float", "index", "is_nonzero"}


SAVED_BY_HALF = 0.5  # of the time in float64 is left in float32, which has half the bytes
WIDE = ("float64", "complex128")


def _wide(trace: TraceData, calls: Sequence[CallProfile], whole: float, limits: Limits) -> Iterator[Weighed]:
    """Operations in float64 in a model whose parameters are narrower: the first, and their share of the time."""
    floats = [p for p in trace.parameters if p.dtype in ("float64", "float32", "float16", "bfloat16")]
    if not floats:
        return
    if sum(p.dtype == "float64" for p in floats) * 2 >= len(floats):
        yield from _in_float64(trace, calls, whole, limits)
        return
    first = None
    seconds = moved = everything = 0.0
    count = 0
    for profile in calls:
        for step, timing in profile.steps:
            size = bytes_moved(step) or 0
            everything += size
            results = [value for _, value in leaves(step.result)]
            if not any(value.dtype in WIDE and value.numel > 1 for value in results):
                continue
            count += 1
            moved += size
            seconds += median(timing.forward) / 1e9 if timing is not None and timing.forward else 0.0
            if first is None:
                first = profile, step
    share = max(100 * seconds / whole if whole else 0.0, 100 * moved / everything if everything else 0.0)
    if first is None or share < limits.wide_share:
        return
    profile, step = first
    wide = next(value.dtype for _, value in leaves(step.result) if value.dtype in WIDE)
    usual = max({p.dtype for p in floats}, key=lambda dtype: sum(p.dtype == dtype for p in floats))
    yield _of_dtype(
        trace,
        (profile, step),
        share,
        limits,
        rule="float64",
        severity=WARNING,
        what=f"{wide} begins here: {count} operations compute in it, while the parameters are {usual}; they take "
        f"{share:.0f} % of the time, or of the bytes",
        advice="Could its operands be converted, or have the dtype where they are made (dtype=x.dtype)?",
    )


def _in_float64(trace: TraceData, calls: Sequence[CallProfile], whole: float, limits: Limits) -> Iterator[Weighed]:
    """A model whose parameters are float64, and which takes float32 or no floats: numpy's default, it may be."""
    given = {value.dtype for value in trace.root.inputs if value.dtype.startswith(("float", "bfloat"))}
    wide = [
        (seconds, profile, step)
        for profile in calls
        for step, timing in profile.steps
        if any(value.dtype in WIDE and value.numel > 1 for _, value in leaves(step.result))
        and (seconds := median(timing.forward) / 1e9 if timing is not None and timing.forward else 0.0)
    ]
    share = 100 * sum(seconds for seconds, _, _ in wide) / whole if whole else 0.0
    if share < limits.wide_share:
        return
    _, profile, step = max(wide, key=lambda one: one[0])
    inputs = "and the inputs " if given == {"float64"} else ""
    yield _of_dtype(
        trace,
        (profile, step),
        share,
        limits,
        rule="float64 weights",
        severity=ADVICE,
        what=f"the parameters {inputs}are float64, twice the bytes of float32: {share:.0f} % of the time is "
        "computed in it",
        advice="Is float64 needed? model.float() with inputs in float32 is the usual; fxdebug.tune measures it.",
    )


def _of_dtype(
    trace: TraceData,
    place: tuple[CallProfile, Step],
    share: float,
    limits: Limits,
    *,
    rule: str,
    severity: Severity,
    what: str,
    advice: str,
) -> Weighed:
    """Return a finding about float64 at an operation, with the share of the time that is at stake."""
    profile, step = place
    call = network_of(trace).call_id(profile.call)
    return (
        share * SAVED_BY_HALF,
        Finding(
            rule=rule,
            severity=severity,
            path=profile.call.path,
            call=call,
            op=step.op.op,
            node=f"{call}/{step.op.name}",
            what=what,
            source=_source(profile, step.op.name),
            measured=share,
            threshold=limits.wide_share,
            unit="%",
            advice=advice,
        ),
    )


def _written_out_attention(
    trace: TraceData, calls: Sequence[CallProfile], whole: float, limits: Limits
) -> Iterator[Weighed]:
    """Attention as separate products and a softmax, where torch has one fused operation."""
    net = network_of(trace)
    places = []
    seconds = 0.0
    for profile in calls:
        names = [canonical(step.op.op) for step, _ in profile.steps]
        softmax = next((i for i, name in enumerate(names) if name in SOFTMAXES), None)
        if softmax is None or not {"matmul", "einsum"} & set(names[:softmax]):
            continue
        if not {"matmul", "einsum"} & set(names[softmax + 1 :]):
            continue
        places.append((profile, profile.steps[softmax][0]))
        seconds += profile.ops_seconds
    if not places or not whole or 100 * seconds / whole < limits.eager_share:
        return
    profile, step = places[0]
    paths = ", ".join(place.call.path for place, _ in places[:3]) + (", …" if len(places) > 3 else "")
    yield (
        100 * seconds / whole,
        Finding(
            rule="eager attention",
            severity=ADVICE,
            path=profile.call.path,
            call=net.call_id(profile.call),
            op=step.op.op,
            node=f"{net.call_id(profile.call)}/{step.op.name}",
            what=f"attention is written out as products and a softmax in {len(places)} calls ({paths}): "
            f"{_share(seconds, whole)} of the time is at stake",
            source=_source(profile, step.op.name),
            measured=100 * seconds / whole,
            threshold=limits.eager_share,
            unit="%",
            advice="Would torch.nn.functional.scaled_dot_product_attention be faster (in transformers: "
            "attn_implementation='sdpa')? fxdebug.tune measures it.",
            others=tuple([f"{net.call_id(place.call)}/{other.op.name}" for place, other in places[1:]]),
        ),
    )


ROOM = 0.1  # of the free memory: what takes less can be kept, and computing it again saves nothing that is needed


def _recomputed(
    trace: TraceData, calls: Sequence[CallProfile], around: Surroundings | None, of_forward: float, limits: Limits
) -> Iterator[Weighed]:
    """Checkpoints whose memory is there: what the backward computes again could be kept."""
    again = None if around is None else around.recomputed
    if again is None or again.free is None or again.bytes > ROOM * again.free:
        return
    share = 100 * again.share * of_forward
    if share < limits.waste_share:
        return
    own = next((p for p in calls if p.call.source == again.line), calls[0])
    times = f"{again.calls} calls" if again.calls > 1 else "1 call"
    yield (
        share,
        Finding(
            rule="recomputation",
            severity=ADVICE,
            path=own.call.path,
            call=network_of(trace).call_id(own.call),
            op="checkpoint",
            what=f"the backward computes {times} of checkpoint again: {share:.0f} % of a step is at stake; to keep "
            f"what it needs takes {quantity(again.bytes, 'B')}, of {quantity(again.free, 'B')} that are free",
            source=again.line,
            measured=share,
            threshold=limits.waste_share,
            unit="%",
            advice="Is checkpointing needed at this batch size? fxdebug.tune measures a step without it.",
        ),
    )


def _parameters(args: Sequence[object]) -> Iterator[Value]:
    return (value for value in args if isinstance(value, Value) and value.name is not None)


def _source(profile: CallProfile, name: str) -> str | None:
    sources: Mapping[str, str | None] = {}
    if profile.call.body is not None and profile.call.graph is not None:
        sources = {op.name: source for op, source in zip(profile.call.graph.ops, profile.call.body.sources)}
    return sources.get(name) or profile.call.source
