"""Pictures of reports, by matplotlib: times as an icicle and a roofline, memory over the run, operations as bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fxdebug.cells import shortened_to
from fxdebug.data.measures import quantity
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import FxDebugError, LoadError, UsageError, first_line
from fxdebug.exports.report import plot_health
from fxdebug.exports.report.activation_picture import draw_histograms
from fxdebug.exports.report.attention_picture import draw_heads
from fxdebug.exports.report.figures import BLUES, FAINT, INK, Axes, Figure, kept_of, new_figure, write_figure
from fxdebug.exports.report.text import Line, folded, total_text

BARS = 15
OF_CATEGORY = {
    "parameters": "#5b6b8c", "buffers": "#8796b3", "inputs": "#c3c9d6", "saved for backward": "#d98c3f",
    "activations": "#7fb069", "temporary": "#cfe3c6", "gradients": "#b0413e", "outputs": "#e8c66a",
}  # fmt: skip


def write_picture(report: ReportData[Any], path: Path) -> Path:
    """Draw a report to a ``.png``, ``.svg`` or ``.pdf``.

    Raises ``MissingExtra`` without matplotlib, ``UsageError`` for an analysis without a picture, and for a report that
    was read from a file where its picture needs more than the rows.
    """
    draw = PICTURES.get(report.analysis)
    if draw is None:
        raise UsageError(f"there is no picture of {report.analysis}: use .csv, .json, .html or .txt")
    return write_figure(lambda: _drawn(draw, report), path)


def _drawn(draw: Callable[[ReportData[Any]], Figure], report: ReportData[Any]) -> Figure:
    try:
        return draw(report)
    except FxDebugError:
        raise
    except Exception as error:
        if not any(isinstance(row, SimpleNamespace) for row in report.rows):
            raise
        told = f"{type(error).__name__}: {first_line(error)}"  # a file may say that any rows are those of any analysis
        raise LoadError(f"the rows of this file are none that a picture of {report.analysis} shows ({told})") from error


def _figure(report: ReportData[Any], title: str, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    figure = new_figure(10, 0.6 + sum(heights), "constrained")
    figure.suptitle(f"{report.subject}: {title}", x=0.01, ha="left", color=INK, fontsize=12, fontweight="bold")
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=list(heights))
    for (axis,) in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK, labelsize=8)
    return figure, [axis for (axis,) in axes]


# Times -------------------------------------------------------------------------------------------


def _profile(report: ReportData[Any]) -> Figure:
    kept_of(report, report.spans or None, "times of calls")
    peaks = ("peak of the machine", "peak of its memory")
    with_roofline = all(name in report.totals for name in peaks) and bool(report.measures.get("flops.rate"))
    deepest = max((span.depth for span in report.spans), default=0)
    title = f"forward {quantity(_number(report, 'forward'), 's')}"
    figure, axes = _figure(report, title, [0.8 + 0.32 * deepest, 4.0] if with_roofline else [0.8 + 0.32 * deepest])
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
    machine, memory = _number(report, "peak of the machine"), _number(report, "peak of its memory")
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


# Memory ------------------------------------------------------------------------------------------


def _memory(report: ReportData[Any]) -> Figure:
    peak, (at_the_peak, _) = _number(report, "peak"), report.totals.get("at the peak", ("", ""))
    figure, (axis,) = _figure(report, f"peak {quantity(peak, 'B')} {at_the_peak}", [4.2])
    kept = kept_of(report, report.series, "bytes over time")
    series = {name: numbers for name, numbers in kept.items() if any(numbers)}
    events = range(len(next(iter(series.values()), ())))
    unit, factor = _unit_of(peak)
    stacked = [[number / factor for number in numbers] for numbers in series.values()]
    colors = [OF_CATEGORY.get(name, FAINT) for name in series]
    if stacked:
        axis.stackplot(events, stacked, labels=list(series), colors=colors, step="post", linewidth=0)
    totals = [sum(column) for column in zip(*stacked)]
    at = max(events, key=totals.__getitem__, default=0)
    if totals:
        axis.axhline(totals[at], color=INK, linewidth=0.7, linestyle=":")
        axis.annotate(
            f"peak {quantity(peak, 'B')}", (at, totals[at]), xytext=(0, 5), textcoords="offset points", ha="center",
            fontsize=8, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, zorder=4,
        )  # fmt: skip
        axis.set_ylim(0, totals[at] * 1.3)  # the labels of marks stand above the peak
    last = max(len(events) - 1, 1)
    first = min([max(event - 1, 0) for event, _ in report.marks], default=0)  # before: what was there already
    begin = first if first < last else 0
    for event, label in report.marks:
        at_end = label.startswith("end of ") or event > begin + 0.97 * (last - begin)  # the next step begins there
        axis.axvline(min(event, last), color=INK, linewidth=0.6, alpha=0.5)
        axis.text(
            min(event, last), axis.get_ylim()[1], f"{label} " if at_end else f" {label}", va="top", fontsize=7,
            color=INK, rotation=90, ha="right" if at_end else "left",
        )  # fmt: skip
    axis.set_xlim(begin, last)
    axis.set_xlabel("allocations and frees, in their order", fontsize=8, color=INK)
    axis.set_ylabel(unit, fontsize=8, color=INK)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    return figure


def _unit_of(size: float) -> tuple[str, float]:
    for name, factor in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if size >= factor:
            return name, factor
    return "B", 1.0


# Operations --------------------------------------------------------------------------------------


def _flops(report: ReportData[Any]) -> Figure:
    lines = [line for line in folded(report) if line["own"] != 0][:BARS]
    figure, (axis,) = _figure(report, total_text(report, "forward"), [0.6 + 0.28 * len(lines)])
    _bars(axis, lines, _column(report, "own"))
    return figure


def _summary(report: ReportData[Any]) -> Figure:
    """Draw the parameters and the multiply-adds of the calls that have no calls in them, side by side."""
    below = report.rows[1:]  # the first row is the model
    outer = {row.call.rpartition("#")[0].rpartition(".")[0] for row in below}
    inner = [row for row in below if row.call.rpartition("#")[0] not in outer]
    lines = folded(replace(report, rows=tuple(inner or report.rows)))
    lines = [line for line in lines if line["params"] or line["macs"] != 0]
    lines = sorted(lines, key=lambda line: -float(line["params"] or 0))[:BARS]
    title = f"{total_text(report, 'parameters')} parameters, {total_text(report, 'mult-adds')}"
    figure, (left,) = _figure(report, title, [0.9 + 0.28 * len(lines)])
    left.remove()
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, field, label in ((left, "params", "parameters"), (right, "macs", "multiply-adds")):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK, labelsize=8)
        _bars(axis, lines, _column(report, field), room=1.3)
        axis.set_xlabel(label, fontsize=8, color=INK)
    right.tick_params(labelleft=False)
    return figure


def _bars(axis: Axes, lines: Sequence[Line], column: Column, room: float = 1.15) -> None:
    """Draw one number of each line as a bar, from the top down; ``room`` for the numbers at their right."""
    numbers = [float(line[column.field] or 0) for line in lines]
    positions = range(len(lines))
    if not lines:
        axis.set_axis_off()
        axis.text(0, 0.5, "no product in the run: its other operations are not counted", fontsize=8, color=INK)
        return
    axis.barh(positions, numbers, color=BLUES[3], height=0.75)
    for position, number, line in zip(positions, numbers, lines):
        is_count = not column.unit and line[column.field] is not None
        text = f"{number:,.0f}" if is_count else line.text(column)  # n/a, and lower bounds as such
        axis.text(number, position, f" {text}", va="center", fontsize=8, color=INK)
    axis.set_yticks(list(positions), [str(line["call"]) for line in lines])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.set_xlim(0, (max(numbers, default=0.0) or 1.0) * room)
    axis.set_xticks([])
    axis.spines["bottom"].set_visible(False)


def _column(report: ReportData[Any], field: str) -> Column:
    return next(column for column in report.columns if column.field == field)


def _number(report: ReportData[Any], total: str) -> float:
    value = report.totals[total][0] if total in report.totals else 0.0
    return float(value) if isinstance(value, (int, float)) else 0.0


PICTURES: dict[str, Callable[[ReportData[Any]], Figure]] = {
    "profile": _profile,
    "memory": _memory,
    "flops": _flops,
    "summary": _summary,
    "attention": draw_heads,
    "activations": draw_histograms,
    "gradients": plot_health.gradients,
    "weights": plot_health.weights,
    "watch": plot_health.watch,
}
