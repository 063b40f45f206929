"""The picture of a training: the loss and the norm of the gradients, step by step."""

from __future__ import annotations

import math
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import (
    BLUE,
    INK,
    ORANGE,
    RED,
    Figure,
    kept_of,
    new_figure,
    plain_axis,
    write_title,
)  # fmt: skip


def draw(report: ReportData[Any]) -> Figure:
    """Draw the loss and the norm of the gradients over the steps; incidents are red, watched steps are ticks."""
    kept = kept_of(report, report.series, "numbers over the steps")
    series = {name: numbers for name, numbers in kept.items() if any(math.isfinite(x) for x in numbers)}
    figure = new_figure(10, 0.8 + 2.6 * max(len(series), 1), "constrained")
    write_title(figure, report, f"{report.totals['steps'][0]} steps, {report.totals['watched'][0]} of them watched")
    axes = figure.subplots(max(len(series), 1), 1, squeeze=False, sharex=True)[:, 0]
    watched = [int(row.step.removeprefix("step ")) for row in report.rows if row.update is not None]
    for axis, (name, numbers) in zip(axes, series.items()):
        finite = [x if math.isfinite(x) else math.nan for x in numbers]
        axis.plot(range(len(finite)), finite, color=BLUE, linewidth=1.0, marker="." if len(finite) < 60 else "")
        known = [x for x in finite if math.isfinite(x)]
        if min(known) > 0 and max(known) > 20 * min(known):
            axis.set_yscale("log")
        at = [step for step in watched if step < len(finite) and math.isfinite(finite[step])]
        axis.plot(
            at, [finite[s] for s in at], color=ORANGE, marker="o", markersize=4, linewidth=0, label="watched step"
        )
        for step, trouble in report.marks:
            axis.axvline(step, color=RED, linewidth=1.0)
            axis.annotate(
                f" step {step}: {trouble}", (step, 1.0), xycoords=("data", "axes fraction"), va="top", fontsize=8,
                color=RED, ha="right" if step > 0.7 * len(finite) else "left",
            )  # fmt: skip
        axis.set_ylabel(name, fontsize=8, color=INK)
        axis.grid(axis="y", color="#e6e6ea", linewidth=0.6)
        plain_axis(axis)
    axes[0].legend(loc="best", frameon=False, fontsize=8)
    axes[-1].set_xlabel("step", fontsize=8, color=INK)
    axes[-1].locator_params(axis="x", integer=True)
    return figure
