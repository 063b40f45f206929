"""Pictures of the health of a model: gradients over depth, histograms of weights, a training step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxdebug.cells import shortened_to
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.report import ReportData
from fxdebug.exports.report.figures import FAINT, INK, Axes, Figure, kept_of, new_figure
from fxdebug.exports.report.text import cell

BLUE, RED, ORANGE = "#2f78ad", "#b0413e", "#d98c3f"
MOST_LABELS = 60  # names below an axis
MOST_HISTOGRAMS = 48  # on a page: eight rows of six
ACROSS = 6


def gradients(report: ReportData[Any]) -> Figure:
    """Draw the root mean squares of gradients: of what calls returned, over depth, and of parameters below."""
    rows = list({row.call: row for row in reversed(report.rows) if row.rms is not None}.values())[::-1]  # first results
    parameters = report.parts[0].rows if report.parts else ()
    height = 8.6 if parameters else 4.6
    figure = new_figure(12, height, "constrained")
    _title(figure, report, f"gradients, total norm {cell(report.totals['total norm'][0])}")
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
            lines.setdefault((kind, _pattern(name)), []).append((position, number))
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
    axis.set_xticks(list(positions)[::every], [_short(name) for name in names[::every]], rotation=90)
    axis.set_xlim(-0.5, max(len(names) - 0.5, 0.5))
    _plain(axis)


def _legend(axis: Axes, names: Sequence[str]) -> None:
    """Name the colours beside the axis; all further kinds share the last colour."""
    shown = [*names[: len(_COLORS) - 1], *(["others"] if len(names) >= len(_COLORS) else [])]
    for name, color in zip(shown, _COLORS):
        axis.plot([], [], color=color, marker="o", markersize=3.5, linewidth=0.7, label=name)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)


def weights(report: ReportData[Any]) -> Figure:
    """Draw histograms of the weights; of many, those whose names differ in numbers alone share one small picture."""
    groups = groups_of(kept_of(report, report.histograms, "histograms"))
    whole = len(groups)
    chosen = sorted(groups, key=lambda name: -sum(sum(h.counts) for h in groups[name]))[:MOST_HISTOGRAMS]
    chosen = [name for name in groups if name in set(chosen)]
    across = min(ACROSS, max(len(chosen), 1))
    down = max(1, math.ceil(len(chosen) / across))
    figure = new_figure(max(2.1 * across, 6), 0.7 + 1.75 * down, "constrained")
    left_out = f", the largest {len(chosen)} of {whole} groups" if len(chosen) < whole else ""
    _title(figure, report, f"histograms of {len(report.histograms)} weights{left_out}")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for axis, name in zip(axes, chosen):
        _histograms(axis, groups[name])
        count = f" ×{len(groups[name])}" if len(groups[name]) > 1 else ""
        axis.set_title(_short(name, 30) + count, fontsize=7, color=INK)
    for axis in axes[len(chosen) :]:
        axis.set_visible(False)
    return figure


def groups_of(histograms: Any) -> dict[str, list[Histogram]]:
    """Return histograms by name; of more than fit, names that differ in numbers alone are one group."""
    if len(histograms) <= MOST_HISTOGRAMS // 2:
        return {name: [histogram] for name, histogram in histograms.items()}
    groups: dict[str, list[Histogram]] = {}
    for name, histogram in histograms.items():
        groups.setdefault(_pattern(name), []).append(histogram)
    return groups


def _pattern(name: str) -> str:
    return ".".join("#" if part.isdigit() else part for part in name.split("."))


def _histograms(axis: Axes, histograms: Sequence[Histogram]) -> None:
    for histogram in histograms:
        edges, counts = histogram.edges, histogram.counts
        axis.stairs(
            counts, edges, fill=len(histograms) == 1, color=BLUE, alpha=0.9 if len(histograms) == 1 else 0.35,
            linewidth=0.8,
        )  # fmt: skip
    axis.set_yticks([])
    axis.locator_params(axis="x", nbins=3)
    _plain(axis, left=False)
    axis.tick_params(labelsize=6)


def watch(report: ReportData[Any]) -> Figure:
    """Draw the loss and the norm of the gradients over the steps; incidents are red, watched steps are ticks."""
    kept = kept_of(report, report.series, "numbers over the steps")
    series = {name: numbers for name, numbers in kept.items() if any(math.isfinite(x) for x in numbers)}
    figure = new_figure(10, 0.8 + 2.6 * max(len(series), 1), "constrained")
    _title(figure, report, f"{report.totals['steps'][0]} steps, {report.totals['watched'][0]} of them watched")
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
        _plain(axis)
    axes[0].legend(loc="best", frameon=False, fontsize=8)
    axes[-1].set_xlabel("step", fontsize=8, color=INK)
    axes[-1].locator_params(axis="x", integer=True)
    return figure


def _title(figure: Figure, report: ReportData[Any], title: str) -> None:
    figure.suptitle(f"{report.subject}: {title}", x=0.01, ha="left", color=INK, fontsize=12, fontweight="bold")


def _plain(axis: Axes, *, left: bool = True) -> None:
    axis.spines[["top", "right"] if left else ["top", "right", "left"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=7)


def _short(name: str, width: int = 28) -> str:
    return shortened_to(name, width, "ends")
