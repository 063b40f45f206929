"""Pictures of activations: a histogram for each layer on one sheet, and one tensor as a heatmap."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fxdebug.cells import shortened_to
from fxdebug.data.report import ReportData
from fxdebug.errors import UsageError
from fxdebug.exports.report.figures import (
    BLUES,
    FAINT,
    FRAME,
    INK,
    Axes,
    Figure,
    block_max,
    kept_of,
    new_figure,
    write_figure,
)
from fxdebug.features.activations.report import ActivationData
from fxdebug.features.shared.records.distributions import Distribution

MOST_HISTOGRAMS = 120
MOST_CELLS = 1000  # rows or columns of a heatmap; more are shown as the largest of each block


def draw_histograms(report: ReportData[Any]) -> Figure:
    """Draw the histogram of each module's results, in the order of the run; counts are logarithmic."""
    kept = kept_of(report, report.distributions if isinstance(report, ActivationData) else None, "distributions")
    known = {id: found for id, found in kept.items() if found.counts}
    names = list(known)[:MOST_HISTOGRAMS]
    columns = min(6, max(3, math.ceil(math.sqrt(len(names)))))
    lines = max(1, math.ceil(len(names) / columns))
    figure = new_figure(2.2 * columns, 0.7 + 1.35 * lines, "constrained")
    left_out = f", the first {len(names)} of {len(known)}" if len(names) < len(known) else ""
    figure.suptitle(f"{report.subject}: activations{left_out}", x=0.01, ha="left", color=INK, fontsize=12,
                    fontweight="bold")  # fmt: skip
    axes = figure.subplots(lines, columns, squeeze=False)
    for position, axis in enumerate(axes.flat):
        if position >= len(names):
            axis.set_axis_off()
            continue
        _draw_histogram(axis, names[position], known[names[position]])
    return figure


def _draw_histogram(axis: Axes, name: str, found: Distribution) -> None:
    edges = np.array(found.edges)
    axis.bar(edges[:-1], found.counts, width=np.diff(edges), align="edge", color=BLUES[3], linewidth=0)
    axis.set_yscale("log")
    axis.set_ylim(0.7, max(found.counts) * 2)
    axis.set_title(shortened_to(name, 32, "ends"), fontsize=7, color=INK, loc="left", pad=2)
    bad = found.count - found.finite
    if bad:
        axis.text(0.98, 0.9, f"{bad} not finite", transform=axis.transAxes, ha="right", va="top", fontsize=7,
                  color="#b0413e")  # fmt: skip
    axis.tick_params(labelsize=6, colors=FAINT, length=2)
    axis.set_yticks([])
    axis.minorticks_off()
    axis.locator_params(axis="x", nbins=4)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(FRAME)


def write_heatmap(matrix: npt.NDArray[np.float64], path: Path, title: str = "") -> Path:
    """Draw a matrix; raises ``MissingExtra`` without matplotlib, ``UsageError`` for an empty one."""
    if not matrix.size:
        raise UsageError("an empty tensor has no heatmap")
    return write_figure(lambda: draw_heatmap(matrix, title), path)


def draw_heatmap(matrix: npt.NDArray[np.float64], title: str) -> Figure:
    """Draw a matrix with a bar of its colours: from the smallest to the largest, around 0 where it has both signs."""
    shown = block_max(np.where(np.isfinite(matrix), matrix, np.nan), MOST_CELLS)
    finite = matrix[np.isfinite(matrix)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    most = max(abs(low), abs(high)) or 1.0
    signed = low < 0 < high
    rows, columns = matrix.shape
    height = min(max(7.0 * rows / max(columns, 1), 1.2), 9.0)
    figure = new_figure(8, height + 0.9, "constrained")
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11, fontweight="bold")
    axis = figure.subplots()
    image = axis.imshow(shown, cmap="RdBu_r" if signed else "Blues", vmin=-most if signed else low,
                        vmax=most if signed else high, aspect="auto", interpolation="nearest",
                        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))  # fmt: skip
    axis.set_facecolor("#f3e3a0")  # NaN, infinities
    axis.tick_params(labelsize=7, colors=INK, length=2)
    axis.spines[:].set_color(FRAME)
    bar = figure.colorbar(image, ax=axis, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=7, colors=INK, length=2)
    bar.outline.set_visible(False)
    return figure
