"""Pictures of attention: all heads of a run as one sheet of maps, and one map token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import (
    FAINT,
    FRAME,
    INK,
    Axes,
    Figure,
    Image,
    block_max,
    kept_of,
    new_figure,
    write_figure,
)
from fxdebug.features.attention.maps import AttentionMap, joined
from fxdebug.features.attention.report import AttentionData, HeadRow

COLORS = "Blues"
CELL_PIXELS, GAP_PIXELS = 56, 4  # of one map on the sheet: larger ones are made smaller, block by block
MOST_LABELS = 64  # tokens that are named at an axis
NUMBERS = (("entropy", "entropy"), ("first", "first token"), ("previous", "previous"), ("induction", "induction"))


def draw_heads(made: ReportData[Any]) -> Figure:
    """Draw every head of every layer: numbers per head as one square each, and below the maps themselves."""
    report = kept_of(made, made if isinstance(made, AttentionData) else None, "maps")
    layers = [one for one in layers_to_show(report) if one.heads]
    if not layers:
        figure = new_figure(8.0, 0.9)
        figure.text(0.015, 0.8, f"{report.subject}: attention", va="top", fontsize=12, fontweight="bold", color=INK)
        figure.text(0.015, 0.3, "no attention was seen in the run: there is no map to draw", fontsize=9, color=INK)
        return figure
    most = max((one.heads for one in layers), default=1)
    names = short_names([one.path or report.subject for one in layers])
    left = 0.35 + 0.085 * max((len(name) for name in names), default=1)
    cell = min(1.8, max(0.34, 11.0 / most))
    width = max(left + most * cell + 0.3, 8.0)
    panels = _panels(report, layers)
    side = min(0.32, (width - left - 0.9 * len(panels)) / max(len(panels), 1) / most)
    tall = max(0.25, side * len(layers))
    height = 0.5 + (tall + 1.0 if panels else 0.0) + len(layers) * cell + 0.45
    figure = new_figure(width, height)
    figure.text(
        0.12 / width, 1 - 0.2 / height, f"{report.subject}: attention of {len(layers)} layers", ha="left", va="top",
        fontsize=12, fontweight="bold", color=INK,
    )  # fmt: skip
    place = _Inches(figure, width, height)
    top = 0.5
    for number, (title, matrix) in enumerate(panels):
        x = left + number * (side * most + 0.9)
        _draw_numbers(place(x, top + 0.25, side * most, tall), title, matrix, names if not number else ())
    top += tall + 1.0 if panels else 0.0
    legend = "each map: queries down, keys across; dark is its largest weight"
    figure.text(left / width, 1 - (top - 0.08) / height, legend, ha="left", va="bottom", fontsize=8, color=FAINT)
    for line, name in enumerate(names):
        figure.text((left - 0.1) / width, 1 - (top + (line + 0.5) * cell) / height, name, ha="right", va="center",
                    fontsize=min(9.0, 22 * cell), color=INK)  # fmt: skip
    axis = place(left, top, most * cell, len(layers) * cell)
    axis.imshow(sheet(layers, most), cmap=COLORS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axis.set_axis_off()
    for head in range(0, most, 1 if cell > 0.3 else 2):
        figure.text((left + (head + 0.47) * cell) / width, 1 - (top + len(layers) * cell + 0.05) / height, str(head),
                    ha="center", va="top", fontsize=7, color=FAINT)  # fmt: skip
    return figure


class _Inches:
    """Adds axes by inches from the left and from the top."""

    def __init__(self, figure: Figure, width: float, height: float) -> None:
        self._figure, self._width, self._height = figure, width, height

    def __call__(self, x: float, y: float, width: float, height: float) -> Axes:
        bottom = self._height - y - height
        whole = (x / self._width, bottom / self._height, width / self._width, height / self._height)
        return self._figure.add_axes(whole)


def layers_to_show(report: AttentionData) -> list[AttentionMap]:
    """Return one map for each module: the calls of a cache joined, else the largest of its calls."""
    groups: dict[str, list[AttentionMap]] = {}
    for one in report.maps:
        groups.setdefault(one.path, []).append(one)
    return [joined(group) or max(group, key=lambda one: one.weights.size) for group in groups.values()]


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without the parts that all of them begin and end with.

    >>> short_names(["model.h.0.attn", "model.h.1.attn"]), short_names(["attention"])
    (['0', '1'], ['attention'])
    """
    if len(set(names)) < 2:
        return [name.rpartition(".")[2] or name for name in names]
    parts = [name.split(".") for name in names]
    start = _shared(parts)
    end = _shared([part[start:][::-1] for part in parts])
    return [".".join(part[start : len(part) - end]) or part[-1] for part in parts]


def _shared(names: Sequence[Sequence[str]]) -> int:
    """Return how many parts all names begin with."""
    return next((i for i, parts in enumerate(zip(*names)) if len(set(parts)) > 1), min(map(len, names)))


def _panels(report: AttentionData, layers: Sequence[AttentionMap]) -> list[tuple[str, Image]]:
    """Return the numbers of all heads as (layers, heads), for each number that is known somewhere."""
    position = {one.path: i for i, one in enumerate(layers)}
    by_call = {one.call: one.path for one in report.maps}
    panels = []
    for field, title in NUMBERS:
        matrix = np.full((len(layers), max(one.heads for one in layers)), np.nan) if layers else np.empty((0, 0))
        for row in report.rows:
            place = position.get(by_call.get(row.call, ""))
            number = _number(row, field)
            if place is not None and number is not None and row.head < matrix.shape[1]:
                matrix[place, row.head] = number
        if not np.isnan(matrix).all():
            panels.append((title, matrix))
    return panels


def _number(row: HeadRow, field: str) -> float | None:
    number: float | None = getattr(row, field)
    return number


def _draw_numbers(axis: Axes, title: str, matrix: Image, names: Sequence[str]) -> None:
    largest = max(0.1, float(np.nanmax(matrix)))
    shown = axis.imshow(matrix, cmap=COLORS, vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
    axis.set_title(title, fontsize=9, color=INK, loc="left", pad=4)
    layers, heads = matrix.shape
    step = max(1, math.ceil(layers / max(1.0, axis.get_position().height * axis.figure.get_figheight() / 0.14)))
    lines = range(0, layers, step)
    axis.set_yticks(list(lines), [names[i] for i in lines] if names else [], fontsize=7, color=INK)
    step = max(1, math.ceil(heads / 8))
    axis.set_xticks(range(0, heads, step), [str(i) for i in range(0, heads, step)], fontsize=7, color=FAINT)
    axis.set_xlabel("head", fontsize=7, color=FAINT, labelpad=1)
    axis.tick_params(length=0)
    axis.spines[:].set_color(FRAME)
    bar = axis.inset_axes((1.03, 0, 0.035, 1))
    axis.figure.colorbar(shown, cax=bar, ticks=[0, largest], format="%.2g")
    bar.tick_params(labelsize=6, length=0, colors=INK)
    bar.set_frame_on(False)


def sheet(layers: Sequence[AttentionMap], most: int) -> Image:
    """Return the maps of all heads as one picture: a row for each layer, gaps between are NaN.

    Numbers are roots of the weights, as a share of the map's largest: small weights are to be seen, too. One axis for
    each map would take a minute for 32 layers of 32 heads.
    """
    step = CELL_PIXELS + GAP_PIXELS
    picture = np.full((max(len(layers), 1) * step, max(most, 1) * step), np.nan)
    for line, one in enumerate(layers):
        for head in range(one.heads):
            small = block_max(one.weights[0, head].astype(np.float64), CELL_PIXELS)
            rows, columns = (np.arange(CELL_PIXELS) * size // CELL_PIXELS for size in small.shape)
            shown = np.sqrt(small / (small.max(initial=0.0) or 1.0))[np.ix_(rows, columns)]
            top, left = line * step, head * step
            picture[top : top + CELL_PIXELS, left : left + CELL_PIXELS] = shown
    return picture


# One map -----------------------------------------------------------------------------------------


def write_map(shown: tuple[AttentionData, AttentionMap], path: Path, head: int | None = None, row: int = 0) -> Path:
    """Draw one map token by token: a head, or the mean of all; raises ``MissingExtra`` without matplotlib."""
    report, one = shown
    return write_figure(lambda: draw_map(report, one, head, row), path)


def draw_map(report: AttentionData, one: AttentionMap, head: int | None, row: int) -> Figure:
    """Draw the weights between tokens, with a label for each; keys that may not be seen stay grey."""
    weights = (one.weights[row].mean(0) if head is None else one.weights[row, head]).astype(np.float64)
    queries, keys = weights.shape
    labels_down, labels_across = labels_for(report, one, row)
    seen = one.seen()[row]
    hidden = ~(seen.any(0) if head is None else seen[head])
    cell = min(0.32, max(0.16, 9.0 / max(keys, 1))) if max(keys, queries) <= MOST_LABELS else 9.0 / max(keys, queries)
    longest = min(18, max(map(len, (*labels_down, *labels_across)), default=1))
    margin = 0.35 + 0.085 * longest
    width, height = max(margin + keys * cell + 1.0, 5.0), max(margin + queries * cell + 0.8, 2.2)
    figure = new_figure(width, height)
    place = _Inches(figure, width, height)
    name = "mean of the heads" if head is None else f"head {head}"
    title = f"{one.path or report.subject}, {name}"
    figure.text(0.1 / width, 1 - 0.12 / height, title, fontsize=11, va="top", color=INK, fontweight="bold")
    axis = place(margin, 0.55 + margin - 0.3, keys * cell, queries * cell)
    picture = np.ma.masked_array(block_max(weights, 1200), block_max(hidden.astype(float), 1200) > 0.5)
    shown = axis.imshow(picture, cmap=COLORS, vmin=0, vmax=max(float(weights.max(initial=0.0)), 1e-9), aspect="auto",
                        interpolation="nearest", extent=(-0.5, keys - 0.5, queries - 0.5, -0.5))  # fmt: skip
    axis.set_facecolor("#ececf0")
    _label(axis.set_xticks, labels_across, rotation=90)
    _label(axis.set_yticks, labels_down)
    axis.xaxis.tick_top()
    axis.tick_params(length=0, colors=INK)
    axis.spines[:].set_color(FRAME)
    bar = place(margin + keys * cell + 0.15, 0.55 + margin - 0.3, 0.12, min(queries * cell, 2.0))
    figure.colorbar(shown, cax=bar)
    bar.tick_params(labelsize=7, length=2, colors=INK)
    bar.set_frame_on(False)
    return figure


def labels_for(report: AttentionData, one: AttentionMap, row: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of queries and of keys; the queries of a cache are the last keys."""
    queries, keys = one.weights.shape[2:]
    across = report.tokens.labels_of(keys, row)
    if one.is_cross:
        return tuple(map(str, range(queries))), across
    return across[keys - queries :], across


def _label(set_ticks: Callable[..., Any], labels: Sequence[str], rotation: int = 0) -> None:
    step = math.ceil(len(labels) / MOST_LABELS)
    places = range(0, len(labels), step)
    texts = [_cut(labels[i]) for i in places]
    set_ticks(list(places), texts, rotation=rotation, fontsize=8)


def _cut(label: str) -> str:
    return label if len(label) <= 18 else label[:17] + "…"
