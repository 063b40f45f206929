"""The picture of ``tune``: time and memory of every change, with the size of the change of the result."""

from __future__ import annotations

from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import INK, Figure, stacked_axes
from fxdebug.features.shared.tried_settings.verdict import CHANGES, TAKE

_COLORS = {TAKE: "#2a7f4f", CHANGES: "#b7791f"}
_REFUSED = "#8a8f98"


def draw(report: ReportData[Any]) -> Figure:
    """Draw every change that was measured: its gain with the interval, by its peak of memory."""
    rows = [row for row in report.rows if row.gain is not None]
    figure, (axis,) = stacked_axes(report, "times as fast, by the peak of memory", [3.6])
    for row in rows:
        color = _COLORS.get(row.verdict, _REFUSED)
        peak = (row.peak or 0) / 2**20
        axis.plot([row.low, row.high], [peak, peak], color=color, linewidth=1.2)
        axis.plot([row.gain], [peak], marker="o", color=color, markersize=5, linestyle="none")
        label = row.change_of + (f", changes {row.change:.0e}" if row.change else "")
        axis.annotate(label, (row.gain, peak), xytext=(4, 4), textcoords="offset points", fontsize=7, color=color)
    axis.axvline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axis.set_xlabel("times as fast (the line is the interval)", fontsize=8, color=INK)
    axis.set_ylabel("peak of a step (MiB)", fontsize=8, color=INK)
    axis.tick_params(colors=INK, labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return figure
