"""Times of repeated runs, per call and operation: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, TypeAlias

from fxdebug.brief import brief

CallKey: TypeAlias = tuple[str, int]  # path of the module, number of the call


@brief
@dataclass(slots=True)
class OpTiming:
    """The times of one operation in every repeat, in nanoseconds; ``backward`` is empty without a loss."""

    name: str
    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)


@brief
@dataclass(slots=True)
class RegionTiming:
    """The times of one region in every repeat, in nanoseconds: itself without calls and regions in it, and whole.

    ``call`` is the module's call that it ran in. ``backward`` is that of all operations in it; empty without a loss.
    """

    call: CallKey
    own: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)


class Span(NamedTuple):
    """One call or region in time, in nanoseconds since the first began."""

    path: str
    number: int
    begin: int
    end: int
    depth: int

    def name(self, model: str) -> str:
        """Return its path; the model's name stands for the path of the whole.

        >>> Span("", 0, 0, 5, 0).name("Net"), Span("/loop", 0, 1, 2, 1).name("Net"), Span("h.0", 0, 1, 2, 1).name("Net")
        ('Net', 'Net/loop', 'h.0')
        """
        return path_or_model(self.path, model)


def median_run(repeats: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the calls and regions of a run, each with the median of its self time over all repeats.

    They are those of the repeat that took the median time; a repeat that the machine disturbed somewhere does not show.
    What is between the calls in a call is split as its parts are in the median.

    >>> quick, slow = [Span("", 0, 0, 9, 0), Span("a", 0, 2, 5, 1)], [Span("", 0, 0, 90, 0), Span("a", 0, 2, 86, 1)]
    >>> [(span.path, span.begin, span.end) for span in median_run([quick, slow, quick])]
    [('', 0, 9), ('a', 2, 5)]
    """
    if not repeats:
        return []
    gaps: dict[CallKey, list[list[int]]] = {}  # of each call: the times before, between and after those in it
    for spans in repeats:
        inside = _inside(spans)
        for position, span in enumerate(spans):
            edges = [span.begin, *(edge for i in inside[position] for edge in spans[i][2:4]), span.end]
            gaps.setdefault((span.path, span.number), []).append([b - a for a, b in zip(edges[::2], edges[1::2])])
    usual = sorted(repeats, key=lambda spans: spans[0].end - spans[0].begin)[len(repeats) // 2]
    inside = _inside(usual)
    parts = [_scaled(gaps[span.path, span.number], len(inner)) for span, inner in zip(usual, inside)]
    lengths, begins = [sum(own) for own in parts], [0] * len(usual)
    for position in reversed(range(len(usual))):  # what is in a call comes after it
        lengths[position] += sum(lengths[inner] for inner in inside[position])
    end = 0
    for position, span in enumerate(usual):
        if span.depth == 0:
            begins[position], end = end, end + lengths[position]
        at = begins[position]
        for gap, inner in zip(parts[position], inside[position]):
            begins[inner] = at + gap
            at += gap + lengths[inner]
    return [span._replace(begin=begin, end=begin + length) for span, begin, length in zip(usual, begins, lengths)]


def _inside(spans: Sequence[Span]) -> list[list[int]]:
    """Return the positions of the spans directly in each span; they are in the order in which they began."""
    found: list[list[int]] = [[] for _ in spans]
    around: list[int] = []
    for position, span in enumerate(spans):
        while around and spans[around[-1]].depth >= span.depth:
            around.pop()
        if around:
            found[around[-1]].append(position)
        around.append(position)
    return found


def _scaled(repeats: Sequence[Sequence[int]], count: int) -> list[int]:
    """Return the median gaps around ``count`` calls; their sum is the median of the sums."""
    own = median([max(0, sum(gaps)) for gaps in repeats])
    alike = [gaps for gaps in repeats if len(gaps) == count + 1]
    gaps = [max(0.0, median(column)) for column in zip(*alike)]
    whole = sum(gaps)
    return [round(gap * own / whole) for gap in gaps] if whole else [0] * count + [round(own)]


def path_or_model(path: str, model: str) -> str:
    """Return the path of a call or region, with the model's name for the path of the whole."""
    return model + path if path[:1] in ("", "/") else path


@brief
@dataclass(slots=True)
class Timings:
    """Nanoseconds of every repeat, in the order of the repeats.

    ``plain`` are whole runs that nothing watched, ``processor`` the processor time of these, of all threads together,
    ``watched`` the same with every call timed, ``loss`` what makes the loss of the output, ``backward`` whole
    backward passes. ``calls`` has the whole time of each
    call, ``own`` that without the calls in it, and ``least`` the least of these in any repeat, also of those that time
    operations; regions are part of all, and have their own times in ``regions``. ``ops`` has the operations of each
    call in the order in which they ran. ``spans`` are the calls and regions of a run in which each takes the median of
    its times.
    ``elsewhere`` counts calls in other threads, which are not timed. ``device_use`` are samples of the
    accelerator's utilisation in %, and ``no_device_use`` the reason where there are none. ``error`` is the exception
    that ended the runs, in a line; ``missing`` the reason why nothing could be timed. ``notes`` tell
    what was not looked at.
    """

    plain: list[int] = field(default_factory=list)
    processor: list[int] = field(default_factory=list)
    watched: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    loss: list[int] = field(default_factory=list)
    calls: dict[CallKey, list[int]] = field(default_factory=dict)
    own: dict[CallKey, list[int]] = field(default_factory=dict)
    least: dict[CallKey, int] = field(default_factory=dict)
    regions: dict[CallKey, RegionTiming] = field(default_factory=dict)
    ops: dict[CallKey, list[OpTiming]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    elsewhere: int = 0
    device_use: list[float] = field(default_factory=list)
    no_device_use: str = ""
    error: str = ""
    missing: str = ""
    notes: list[str] = field(default_factory=list)


@brief
@dataclass(frozen=True, slots=True)
class MachinePeak:
    """The largest rates measured on a machine: operations of a matrix product, bytes of a copy, each per second."""

    flops: float
    bytes: float
    dtype: str
    device: str
    threads: int
