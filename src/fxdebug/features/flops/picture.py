"""The picture of operations: a bar for each call that has operations outside its inner calls."""

from __future__ import annotations

from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import MOST_BARS, Figure, column_of, draw_bars, stacked_axes
from fxdebug.exports.report.text import folded, total_text


def draw(report: ReportData[Any]) -> Figure:
    """Draw the operations of each call as a bar, largest first."""
    lines = [line for line in folded(report) if line["own"] != 0][:MOST_BARS]
    figure, (axis,) = stacked_axes(report, total_text(report, "forward"), [0.6 + 0.28 * len(lines)])
    draw_bars(axis, lines, column_of(report, "own"))
    return figure
