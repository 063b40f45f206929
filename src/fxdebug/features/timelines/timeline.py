"""A run in time: the calls and operations of each rank as slices, bytes as counters, the flow of data as arrows.

A profile knows when its calls began. A traced run knows how long each call took, and in which order they ran: its
slices follow one another without the gaps that may have been between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fxdebug.data.calls import Call
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.features.shared.programs.dataflow import Dataflow
from fxdebug.printable import printable
from fxdebug.query.attach_measures import all_numbers
from fxdebug.query.measures import id_of
from fxdebug.query.network import Node, network_of

MAIN = "calls"
_TOTAL = "time.total"


@dataclass(frozen=True, slots=True)
class Slice:
    """A call, a region or an operation in time, in nanoseconds; ``depth`` counts the slices around it."""

    name: str
    kind: str
    begin: int
    end: int
    depth: int
    track: int = 0
    facts: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time: its name, its unit, and the nanoseconds from which on it had a value."""

    name: str
    unit: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """The slices of one process: one rank, or the whole run. ``flows`` are pairs of positions in ``slices``.

    Slices of a track are in the order in which they began, those around others first. ``marks`` are moments by name.
    """

    name: str
    id: int
    tracks: tuple[str, ...]
    slices: tuple[Slice, ...]
    counters: tuple[Counter, ...] = ()
    flows: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[int, str], ...] = ()


def opened_and_closed(slices: Sequence[Slice]) -> Iterator[tuple[bool, Slice]]:
    """Yield each slice of one track twice, where it begins (``True``) and where it ends, well nested."""
    pending: list[Slice] = []
    for one in slices:
        while pending and pending[-1].depth >= one.depth:
            yield False, pending.pop()
        yield True, one
        pending.append(one)
    while pending:
        yield False, pending.pop()


# Reports -----------------------------------------------------------------------------------------


def lanes_of_report(report: ReportData[Any]) -> list[Lane]:
    """Return the spans of a profile, or the bytes of a memory report over its allocations.

    Raises ``UsageError`` for a report with neither.
    """
    if report.spans:
        return [_spans(report)]
    if report.analysis == "memory" and report.series:
        return [_bytes(report)]
    raise UsageError(f"{report.analysis} has no times of calls: use fxdebug.profile(model, inputs)")


def _spans(report: ReportData[Any]) -> Lane:
    own = report.measures.get("time.self", {})
    slices = []
    for span in report.spans:
        name = span.name(report.subject)
        id = f"{name}#{span.number}"
        facts: dict[str, str | float] = {"call": id}
        if id in own:
            facts["self time, ms"] = own[id] * 1e3
        kind = "region" if "/" in span.path else "call"
        slices.append(Slice(name, kind, span.begin, span.end, span.depth, facts=facts))
    return Lane(report.subject, 1, (MAIN,), tuple(slices))


def _bytes(report: ReportData[Any]) -> Lane:
    """Return counters over allocations and releases: when these happened was not measured, only their order."""
    counters = [
        Counter(name, "B", tuple([(event * 1_000, number) for event, number in enumerate(series)]))
        for name, series in report.series.items()
    ]
    marks = tuple([(event * 1_000, text) for event, text in report.marks])
    return Lane(f"{report.subject}: memory, 1 µs is one allocation or release", 1, (), (), tuple(counters), (), marks)


# Runs --------------------------------------------------------------------------------------------


def lanes_of_traces(traces: Sequence[TraceData]) -> list[Lane]:
    """Return a lane for each run: the ranks of a distributed run, at the times at which their clocks say they began.

    Raises ``UsageError`` for two runs of the same rank.
    """
    begins = [_nanoseconds(trace.started) for trace in traces]
    first = min(begins)
    lanes = [_TracedRun(trace, place, begin - first).lane() for place, (trace, begin) in enumerate(zip(traces, begins))]
    if len({lane.id for lane in lanes}) < len(lanes):
        raise UsageError("two of these runs are of the same rank: give each rank once")
    return lanes


def _nanoseconds(started: str) -> int:
    try:
        return round(datetime.fromisoformat(started).timestamp() * 1e6) * 1_000
    except ValueError:
        return 0


class _TracedRun:
    """Lay the calls of a run out in time."""

    def __init__(self, trace: TraceData, place: int, begin: int) -> None:
        self._trace, self._place, self._begin = trace, place, begin
        threads: list[str | None] = [None, *(call.thread for call in trace.calls)]
        self._tracks = {thread: number for number, thread in enumerate(dict.fromkeys(threads))}
        taken = trace.taken.get(_TOTAL)
        self._times: Mapping[str, float] = {} if taken is None else taken.numbers
        timed = any("/" in id for id in self._times) and trace.graph_source is not None
        self._timed: dict[int, list[Node]] = self._timed_operations() if timed else {}
        self._slices: list[Slice] = []
        self._places: dict[str, int] = {}  # id of a call or operation → its slice

    def _timed_operations(self) -> dict[int, list[Node]]:
        """Return the operations with a time of their own, by the call that ran them."""
        found: dict[int, list[Node]] = {}
        for id, node in network_of(self._trace).nodes.items():
            if node.kind in ("call_function", "call_method") and id in self._times:
                found.setdefault(node.call.index, []).append(node)
        return found

    def lane(self) -> Lane:
        """Return the run as a lane."""
        self._lay_out()
        rank = self._trace.settings.get("rank")
        number = rank if isinstance(rank, int) else self._place
        name = printable(self._trace.model) + (f", rank {rank}" if isinstance(rank, int) else "")
        tracks = tuple([MAIN if thread is None else printable(thread) for thread in self._tracks])
        return Lane(name, number + 1, tracks, tuple(self._slices), self._counters(), tuple(self._flows()))

    def _lay_out(self) -> None:
        """Put every call and operation behind what ran before it in the same call."""
        cursors = [self._begin] * len(self._trace.calls)
        pending: list[tuple[Call, int, Iterator[Call | Node]]] = []

        def enter(call: Call) -> None:
            begin = cursors[call.parent_index] if call.parent_index is not None else self._begin
            cursors[call.index] = begin
            self._places[id_of(self._trace, call)] = len(self._slices)
            self._slices.append(self._slice_of(call, begin))
            pending.append((call, len(self._slices) - 1, iter(self._contents(call))))

        enter(self._trace.root)
        while pending:
            call, place, contents = pending[-1]
            item = next(contents, None)
            if item is None:
                pending.pop()
                self._leave(call, place, cursors)
            elif isinstance(item, Call):
                enter(item)
            else:
                cursors[call.index] = self._add(item, self._slices[place], cursors[call.index])

    def _contents(self, call: Call) -> list[Call | Node]:
        """Return the calls and timed operations in a call itself, in execution order."""
        operations = self._timed.get(call.index)
        if not operations:
            return list(call.children)
        first = network_of(self._trace).first_position
        placed = [(first[child.index], place, child) for place, child in enumerate(call.children)]
        both: list[tuple[int, int, Call | Node]] = [*placed, *((node.position, -1, node) for node in operations)]
        return [item for _, _, item in sorted(both, key=lambda one: one[:2])]

    def _slice_of(self, call: Call, begin: int) -> Slice:
        id = id_of(self._trace, call)
        seconds = self._times.get(id, call.duration)
        facts: dict[str, str | float] = {"call": printable(call.id), "class": printable(call.type)}
        facts |= {} if call.source is None else {"source": printable(call.source)}
        facts |= {} if call.error is None else {"error": printable(str(call.error))}
        facts |= {"duration, s": call.duration} | _numbers(self._trace, id)
        depth = call.depth if call.thread is None else 0
        parent = call.parent
        if call.thread is not None and parent is not None and parent.thread == call.thread:
            depth = self._slices[self._places[id_of(self._trace, parent)]].depth + 1
        name = printable(call.path or self._trace.model)
        end = begin + _whole(seconds)
        return Slice(name, "call", begin, end, depth, self._tracks[call.thread], facts)

    def _add(self, node: Node, around: Slice, begin: int) -> int:
        """Add an operation; return where it ends."""
        facts: dict[str, str | float] = {"operation": printable(node.id)}
        facts |= {} if node.source is None else {"source": printable(node.source)}
        end = begin + _whole(self._times[node.id])
        self._places[node.id] = len(self._slices)
        numbers = facts | _numbers(self._trace, node.id)
        self._slices.append(Slice(printable(node.op), "operation", begin, end, around.depth + 1, around.track, numbers))
        return end

    def _leave(self, call: Call, place: int, cursors: list[int]) -> None:
        """Let a call end after what is in it: medians of many runs need not add up."""
        own = self._slices[place]
        end = max(own.end, cursors[call.index])
        if end != own.end:
            self._slices[place] = Slice(own.name, own.kind, own.begin, end, own.depth, own.track, own.facts)
        parent = call.parent
        if parent is not None and parent.thread == call.thread:
            cursors[parent.index] = end

    def _counters(self) -> tuple[Counter, ...]:
        """Return the most bytes alive in each innermost call, where they were measured."""
        taken = self._trace.taken.get("memory.peak")
        if taken is None:
            return ()
        points: list[tuple[int, float]] = []
        for call in self._trace.calls:
            number = taken.numbers.get(id_of(self._trace, call))
            if number is not None and not call.children:
                own = self._slices[self._places[id_of(self._trace, call)]]
                points += [(own.begin, number), (own.end, 0.0)]
        return (Counter("memory.peak of innermost calls", "B", tuple(points)),) if points else ()

    def _flows(self) -> Iterator[tuple[int, int]]:
        """Yield the slices that a value goes from and to: operations where these are timed, else calls."""
        if self._trace.graph_source is None:
            return
        flow, seen = Dataflow(self._trace), set()
        nodes = {node.id: node for node in flow.nodes}
        for node in flow.nodes:
            target = self._place_of(node)
            for source in flow.sources(node):
                pair = self._place_of(nodes[source.node]), target
                if pair[0] < pair[1] and pair not in seen and not self._is_around(*pair):
                    seen.add(pair)
                    yield pair

    def _place_of(self, node: Node) -> int:
        known = self._places.get(node.id)
        return self._places[id_of(self._trace, node.call)] if known is None else known

    def _is_around(self, source: int, target: int) -> bool:
        """Is the second slice inside the first?"""
        first, second = self._slices[source], self._slices[target]
        return first.track == second.track and first.depth < second.depth and second.end <= first.end


def _numbers(trace: TraceData, id: str) -> dict[str, float]:
    numbers = all_numbers(trace.taken, id)
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def _whole(seconds: float) -> int:
    return max(round(seconds * 1e9), 0)
