"""Pictures of reports, by matplotlib: times as an icicle and a roofline, memory over the run, operations as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fxdebug.data.measures import quantity
from fxdebug.data.report import ReportData
from fxdebug.errors import MissingExtra, UsageError
from fxdebug.exports.report.text import folded
from fxdebug.files.write_file import written_whole

Axes: TypeAlias = Any  # matplotlib's: it is imported only when a picture is drawn
Figure: TypeAlias = Any

BARS = 15
INK, FAINT = "#33333a", "#9a9aa5"
BLUES = ("#e3eef9", "#b5d4e9", "#88bcdc", "#559bc8", "#2f78ad")
OF_CATEGORY = {
    "parameters": "#5b6b8c", "buffers": "#8796b3", "inputs": "#c3c9d6", "saved for backward": "#d98c3f",
    "activations": "#7fb069", "temporary": "#cfe3c6", "gradients": "#b0413e", "outputs": "#e8c66a",
}  # fmt: skip


def write_picture(report: ReportData[Any], path: Path) -> Path:
    """Draw a report to a ``.png``, ``.svg`` or ``.pdf``.

    Raises ``MissingExtra`` without matplotlib, ``UsageError`` for an analysis without a picture.
    """
    try:
        import matplotlib.backends.backend_agg  # without a window: nothing asks for a screen
    except ImportError as error:
        raise MissingExtra("drawing a report needs matplotlib: pip install 'fxdebug[plot]'") from error
    draw = PICTURES.get(report.analysis)
    if draw is None:
        raise UsageError(f"there is no picture of {report.analysis}: use .csv, .json or .txt")
    figure = draw(report)
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
    with written_whole(path) as new:
        figure.savefig(new, format=path.suffix[1:].lower(), dpi=150)
    return path


def _figure(report: ReportData[Any], title: str, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(10, 0.6 + sum(heights)), layout="constrained")
    figure.suptitle(f"{report.subject}: {title}", x=0.01, ha="left", color=INK, fontsize=12, fontweight="bold")
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=list(heights))
    for (axis,) in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK, labelsize=8)
    return figure, [axis for (axis,) in axes]


# Times -------------------------------------------------------------------------------------------


def _profile(report: ReportData[Any]) -> Figure:
    peaks = {name: report.totals.get(name) for name in ("peak of the machine", "peak of its memory")}
    with_roofline = all(peaks.values())
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
    if not spans:
        return
    whole = max(span.end for span in spans)
    own = [span.end - span.begin for span in spans]
    open_spans: list[int] = []
    for position, span in enumerate(spans):
        while open_spans and spans[open_spans[-1]].depth >= span.depth:
            open_spans.pop()
        if open_spans:
            own[open_spans[-1]] -= span.end - span.begin
        open_spans.append(position)
    largest = max(max(own), 1)
    width = 100  # letters that fit the whole axis
    for span, self_time in zip(spans, own):
        share = (span.end - span.begin) / whole
        shade = BLUES[min(int(len(BLUES) * self_time / largest), len(BLUES) - 1)]
        begin, length = span.begin / 1e6, (span.end - span.begin) / 1e6
        axis.barh(span.depth, length, left=begin, height=0.94, color=shade, edgecolor="white", linewidth=0.4)
        name = span.path.rpartition(".")[2] or report.subject
        name = ".".join(span.path.split(".")[-2:]) if name.isdigit() else name
        if len(name) + 1 <= share * width:
            dark = shade in BLUES[3:]
            axis.text(
                begin + length / 2, span.depth, name, ha="center", va="center", fontsize=7,
                color="white" if dark else INK, clip_on=True,
            )  # fmt: skip
    axis.set_ylim(max(span.depth for span in spans) + 0.5, -0.5)
    axis.set_xlim(0, whole / 1e6)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("ms of one run; darker: more time in the call itself", fontsize=8, color=INK)


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
    named: set[str] = set()
    for x, y, _, id in sorted(points, key=lambda point: -point[2])[:12]:
        name = id.removesuffix("#0").rpartition(".")[2]
        if name not in named and len(named) < 6:
            named.add(name)
            axis.annotate(name, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7, color=INK)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.text(high, machine, f"{quantity(machine, 'FLOP/s')} ", ha="right", va="bottom", fontsize=8, color=INK)
    axis.text(low, low * memory, f"  {quantity(memory, 'B/s')}", ha="left", va="top", fontsize=8, color=INK)
    axis.set_xlabel("operations per byte; larger: more time in the call itself", fontsize=8, color=INK)
    axis.set_ylabel("operations per second", fontsize=8, color=INK)


# Memory ------------------------------------------------------------------------------------------


def _memory(report: ReportData[Any]) -> Figure:
    peak = _number(report, "peak")
    figure, (axis,) = _figure(report, f"peak {quantity(peak, 'B')} {report.totals['at the peak'][0]}", [4.2])
    series = {name: numbers for name, numbers in report.series.items() if any(numbers)}
    events = range(len(next(iter(series.values()), ())))
    unit, factor = _unit_of(peak)
    stacked = [[number / factor for number in numbers] for numbers in series.values()]
    colors = [OF_CATEGORY.get(name, FAINT) for name in series]
    axis.stackplot(events, stacked, labels=list(series), colors=colors, step="post", linewidth=0)
    totals = [sum(column) for column in zip(*stacked)]
    at = max(events, key=totals.__getitem__, default=0)
    if totals:
        axis.axhline(totals[at], color=INK, linewidth=0.7, linestyle=":")
        axis.annotate(
            f"peak {quantity(peak, 'B')}", (at, totals[at]), xytext=(0, 5), textcoords="offset points", ha="center",
            fontsize=8, color=INK,
        )  # fmt: skip
        axis.set_ylim(0, totals[at] * 1.3)  # the labels of marks stand above the peak
    for event, label in report.marks:
        axis.axvline(event, color=INK, linewidth=0.6, alpha=0.5)
        axis.text(event, axis.get_ylim()[1], f" {label}", va="top", fontsize=7, color=INK, rotation=90, ha="left")
    axis.set_xlim(0, max(len(events) - 1, 1))
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
    lines = [line for line in folded(report) if line["own"]][:BARS]
    figure, (axis,) = _figure(report, quantity(_number(report, "forward"), "FLOP"), [0.6 + 0.28 * len(lines)])
    numbers = [float(line["own"] or 0) for line in lines]
    positions = range(len(lines))
    axis.barh(positions, numbers, color=BLUES[3], height=0.75)
    for position, number in zip(positions, numbers):
        axis.text(number, position, f" {quantity(number, 'FLOP')}", va="center", fontsize=8, color=INK)
    axis.set_yticks(list(positions), [str(line["call"]) for line in lines])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.set_xlim(0, max(numbers, default=1.0) * 1.15)
    axis.set_xticks([])
    axis.spines["bottom"].set_visible(False)
    return figure


def _number(report: ReportData[Any], total: str) -> float:
    value = report.totals[total][0] if total in report.totals else 0.0
    return float(value) if isinstance(value, (int, float)) else 0.0


PICTURES: dict[str, Callable[[ReportData[Any]], Figure]] = {
    "profile": _profile,
    "memory": _memory,
    "flops": _flops,
}
