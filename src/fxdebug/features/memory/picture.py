"""The picture of memory: what was alive over a run, by its use."""

from __future__ import annotations

from typing import Any

from fxdebug.data.measures import quantity
from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import FAINT, INK, Figure, kept_of, number_of_total, stacked_axes

OF_CATEGORY = {
    "parameters": "#5b6b8c", "buffers": "#8796b3", "inputs": "#c3c9d6", "saved for backward": "#d98c3f",
    "activations": "#7fb069", "temporary": "#cfe3c6", "gradients": "#b0413e", "outputs": "#e8c66a",
}  # fmt: skip


def draw(report: ReportData[Any]) -> Figure:
    """Draw the bytes that were alive over a run, by their use."""
    peak, (at_the_peak, _) = number_of_total(report, "peak"), report.totals.get("at the peak", ("", ""))
    figure, (axis,) = stacked_axes(report, f"peak {quantity(peak, 'B')} {at_the_peak}", [4.2])
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
