"""The picture of gradients: over depth, and of parameters below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    RED,
    Axes,
    Figure,
    new_figure,
    pattern_of,
    plain_axis,
    short_name,
    write_title,
)  # fmt: skip
from fxdebug.exports.report.text import cell

MOST_LABELS = 60  # names below an axis


def draw(report: ReportData[Any]) -> Figure:
    """Draw the root mean squares of gradients: of what calls returned, over depth, and of parameters below."""
    rows = list({row.call: row for row in reversed(report.rows) if row.rms is not None}.values())[::-1]  # first results
    parameters = report.parts[0].rows if report.parts else ()
    height = 8.6 if parameters else 4.6
    figure = new_figure(12, height, "constrained")
    write_title(figure, report, f"gradients, total norm {cell(report.totals['total norm'][0])}")
    axes = figure.subplots(2 if parameters else 1, 1, squeeze=False)[:, 0]
    kinds = list(dict.fromkeys(row.type for row in rows))
    numbers = [row.rms for row in rows]
    _dots(axes[0], [row.call.removesuffix("#0") for row in rows], numbers, [kinds.index(row.type) for row in rows])
    _legend(axes[0], kinds)
    axes[0].set_title("root mean square of the gradient of what each call returned, in forward order", **_SMALL)
    if parameters:
        known = [row for row in parameters if row.rms is not None]
        ends = [row.name.rpartition(".")[2] if row.state == "trained" else row.state for row in known]
        kinds = list(dict.fromkeys(ends))
        _dots(axes[1], [row.name for row in known], [row.rms for row in known], [kinds.index(end) for end in ends])
        _legend(axes[1], kinds)
        axes[1].set_title("root mean square of the gradient of each parameter", **_SMALL)
    return figure


_SMALL = {"fontsize": 9, "color": INK, "loc": "left"}
_COLORS = (BLUE, ORANGE, "#5b9a4b", RED, "#7a5fa3", "#8a6d4f", "#4aa5a5", "#c9589c", FAINT)


def _dots(axis: Axes, names: Sequence[str], numbers: Sequence[float], kinds: Sequence[int]) -> None:
    """Draw one dot for each name, in the colour of its kind; lines join names that differ in numbers alone."""
    positions = range(len(names))
    lines: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for position, name, number, kind in zip(positions, names, numbers, kinds):
        if number and math.isfinite(number):
            lines.setdefault((kind, pattern_of(name)), []).append((position, number))
    for (kind, _), dots in lines.items():
        axis.plot(
            [p for p, _ in dots], [x for _, x in dots], color=_COLORS[min(kind, len(_COLORS) - 1)], marker="o",
            markersize=3.5, linewidth=0.7,
        )  # fmt: skip
    for position, number in zip(positions, numbers):
        if not math.isfinite(number):
            axis.axvline(position, color=RED, linewidth=1.2)
    axis.set_yscale("log")
    axis.grid(axis="y", color="#e6e6ea", linewidth=0.6)
    every = max(1, math.ceil(len(names) / MOST_LABELS))
    axis.set_xticks(list(positions)[::every], [short_name(name) for name in names[::every]], rotation=90)
    axis.set_xlim(-0.5, max(len(names) - 0.5, 0.5))
    plain_axis(axis)


def _legend(axis: Axes, names: Sequence[str]) -> None:
    """Name the colours beside the axis; all further kinds share the last colour."""
    shown = [*names[: len(_COLORS) - 1], *(["others"] if len(names) >= len(_COLORS) else [])]
    for name, color in zip(shown, _COLORS):
        axis.plot([], [], color=color, marker="o", markersize=3.5, linewidth=0.7, label=name)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
