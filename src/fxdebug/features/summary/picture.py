"""The picture of a summary: parameters and multiply-adds side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import INK, MOST_BARS, Figure, column_of, draw_bars, stacked_axes
from fxdebug.exports.report.text import folded, total_text


def draw(report: ReportData[Any]) -> Figure:
    """Draw the parameters and the multiply-adds of the calls that have no calls in them, side by side."""
    below = report.rows[1:]  # the first row is the model
    outer = {row.call.rpartition("#")[0].rpartition(".")[0] for row in below}
    inner = [row for row in below if row.call.rpartition("#")[0] not in outer]
    lines = folded(replace(report, rows=tuple(inner or report.rows)))
    lines = [line for line in lines if line["params"] or line["macs"] != 0]
    lines = sorted(lines, key=lambda line: -float(line["params"] or 0))[:MOST_BARS]
    title = f"{total_text(report, 'parameters')} parameters, {total_text(report, 'mult-adds')}"
    figure, (left,) = stacked_axes(report, title, [0.9 + 0.28 * len(lines)])
    left.remove()
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, field, label in ((left, "params", "parameters"), (right, "macs", "multiply-adds")):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK, labelsize=8)
        draw_bars(axis, lines, column_of(report, field), room=1.3)
        axis.set_xlabel(label, fontsize=8, color=INK)
    right.tick_params(labelleft=False)
    return figure
