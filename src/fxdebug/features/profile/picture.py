"""Pictures of a profile: times as an icicle, and a roofline."""

from __future__ import annotations

import math
from typing import Any

from fxdebug.cells import shortened_to
from fxdebug.data.measures import quantity
from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import BLUES, INK, Axes, Figure, kept_of, number_of_total, stacked_axes


def draw(report: ReportData[Any]) -> Figure:
    """Draw the calls of a run as an icicle, and below it a roofline where the peak of the machine is known."""
    kept_of(report, report.spans or None, "times of calls")
    peaks = ("peak of the machine", "peak of its memory")
    with_roofline = all(name in report.totals for name in peaks) and bool(report.measures.get("flops.rate"))
    deepest = max((span.depth for span in report.spans), default=0)
    title = f"forward {quantity(number_of_total(report, 'forward'), 's')}"
    figure, axes = stacked_axes(report, title, [0.8 + 0.32 * deepest, 4.0] if with_roofline else [0.8 + 0.32 * deepest])
    _icicle(axes[0], report)
    if with_roofline:
        _roofline(axes[1], report)
    return figure


def _icicle(axis: Axes, report: ReportData[Any]) -> None:
    """Each call is a bar as wide as its time, below the call that it was made in; darker: more self time."""
    spans = report.spans
    whole = max(span.end for span in spans)
    own = [span.end - span.begin for span in spans]
    open_spans: list[int] = []
    for position, span in enumerate(spans):
        while open_spans and spans[open_spans[-1]].depth >= span.depth:
            open_spans.pop()
        if open_spans:
            own[open_spans[-1]] -= span.end - span.begin
        open_spans.append(position)
    unit, factor = ("ms", 1e6) if whole >= 1e6 else ("µs", 1e3)
    largest = max(max(own), 1)
    width = 100  # letters that fit the whole axis
    for span, self_time in zip(spans, own):
        share = (span.end - span.begin) / whole
        shade = BLUES[min(int(len(BLUES) * self_time / largest), len(BLUES) - 1)]
        begin, length = span.begin / factor, (span.end - span.begin) / factor
        axis.barh(span.depth, length, left=begin, height=0.94, color=shade, edgecolor="white", linewidth=0.4)
        name = _short(span.name(report.subject))
        if len(name) + 1 <= share * width:
            dark = shade in BLUES[3:]
            axis.text(
                begin + length / 2, span.depth, name, ha="center", va="center", fontsize=7,
                color="white" if dark else INK, clip_on=True,
            )  # fmt: skip
    axis.set_ylim(max(span.depth for span in spans) + 0.5, -0.5)
    axis.set_xlim(0, whole / factor)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.set_xlabel(f"{unit} of one run; darker: more time in the call itself", fontsize=8, color=INK)


def _short(path: str) -> str:
    """Return the last part of a path; the last two where that is a number; the name of a region.

    >>> _short("h.0.attn"), _short("h.0"), _short("h.0.attn/scores")
    ('attn', 'h.0', 'scores')
    """
    _, slash, region = path.rpartition("/")
    parts = path.split(".")
    return region if slash else ".".join(parts[-2:] if parts[-1].isdigit() else parts[-1:])


def _roofline(axis: Axes, report: ReportData[Any]) -> None:
    """Each call with products at its operations per byte and per second, below the machine's peak."""
    flops, moved = report.measures.get("flops.self", {}), report.measures.get("bytes.moved", {})
    rates, own = report.measures.get("flops.rate", {}), report.measures.get("time.self", {})
    machine, memory = number_of_total(report, "peak of the machine"), number_of_total(report, "peak of its memory")
    points = [(flops[id] / moved[id], rates[id], own.get(id, 0.0), id) for id in rates if moved.get(id)]
    ridge = machine / memory
    low = min([0.1, *(x for x, *_ in points)]) / 2
    high = max([10 * ridge, *(x for x, *_ in points)]) * 2
    axis.plot([low, ridge, high], [low * memory, machine, machine], color=INK, linewidth=1.2)
    largest = max((time for *_, time, _ in points), default=1.0) or 1.0
    for x, y, time, _ in points:
        axis.scatter(x, y, s=12 + 240 * time / largest, color=BLUES[3], alpha=0.55, linewidths=0)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    below = min([low * memory, *(y for _, y, _, _ in points)]) / 2
    axis.set_ylim(below, machine * 4)
    named: list[tuple[float, float]] = []  # where labels stand, as shares of the axes
    wide, tall = math.log(high / low), math.log(machine * 4 / below)
    for x, y, _, id in sorted(points, key=lambda point: -point[2])[:12]:
        at = math.log(x / low) / wide, math.log(y / below) / tall
        if all(abs(at[0] - other[0]) > 0.2 or abs(at[1] - other[1]) > 0.05 for other in named):
            named.append(at)
            right = at[0] > 0.8
            axis.annotate(
                shortened_to(id.removesuffix("#0"), 24, "ends"), (x, y),
                xytext=(-6 if right else 6, 4), textcoords="offset points",
                ha="right" if right else "left", fontsize=7, color=INK,
            )  # fmt: skip
    axis.text(ridge, machine * 1.15, f"{quantity(machine, 'FLOP/s')}", ha="left", va="bottom", fontsize=8, color=INK)
    middle = (low * ridge) ** 0.5
    axis.text(middle, middle * memory * 1.3, f"{quantity(memory, 'B/s')} ", ha="right", fontsize=8, color=INK)
    axis.set_xlabel("operations per byte; larger: more time in the call itself", fontsize=8, color=INK)
    axis.set_ylabel("operations per second", fontsize=8, color=INK)
