"""The picture of weights: their histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import (
    BLUE,
    INK,
    Axes,
    Figure,
    kept_of,
    new_figure,
    pattern_of,
    plain_axis,
    short_name,
    write_title,
)  # fmt: skip

MOST_HISTOGRAMS = 48  # on a page: eight rows of six
ACROSS = 6


def draw(report: ReportData[Any]) -> Figure:
    """Draw histograms of the weights; of many, those whose names differ in numbers alone share one small picture."""
    groups = groups_of(kept_of(report, report.histograms, "histograms"))
    whole = len(groups)
    chosen = sorted(groups, key=lambda name: -sum(sum(h.counts) for h in groups[name]))[:MOST_HISTOGRAMS]
    chosen = [name for name in groups if name in set(chosen)]
    across = min(ACROSS, max(len(chosen), 1))
    down = max(1, math.ceil(len(chosen) / across))
    figure = new_figure(max(2.1 * across, 6), 0.7 + 1.75 * down, "constrained")
    left_out = f", the largest {len(chosen)} of {whole} groups" if len(chosen) < whole else ""
    write_title(figure, report, f"histograms of {len(report.histograms)} weights{left_out}")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for axis, name in zip(axes, chosen):
        _histograms(axis, groups[name])
        count = f" ×{len(groups[name])}" if len(groups[name]) > 1 else ""
        axis.set_title(short_name(name, 30) + count, fontsize=7, color=INK)
    for axis in axes[len(chosen) :]:
        axis.set_visible(False)
    return figure


def groups_of(histograms: Any) -> dict[str, list[Histogram]]:
    """Return histograms by name; of more than fit, names that differ in numbers alone are one group."""
    if len(histograms) <= MOST_HISTOGRAMS // 2:
        return {name: [histogram] for name, histogram in histograms.items()}
    groups: dict[str, list[Histogram]] = {}
    for name, histogram in histograms.items():
        groups.setdefault(pattern_of(name), []).append(histogram)
    return groups


def _histograms(axis: Axes, histograms: Sequence[Histogram]) -> None:
    for histogram in histograms:
        edges, counts = histogram.edges, histogram.counts
        axis.stairs(
            counts, edges, fill=len(histograms) == 1, color=BLUE, alpha=0.9 if len(histograms) == 1 else 0.35,
            linewidth=0.8,
        )  # fmt: skip
    axis.set_yticks([])
    axis.locator_params(axis="x", nbins=3)
    plain_axis(axis, left=False)
    axis.tick_params(labelsize=6)
