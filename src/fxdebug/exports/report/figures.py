"""Figures of matplotlib, the extra ``plot``: make an empty one, write one to a file. Nothing asks for a screen."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fxdebug.cells import shortened_to
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import MissingExtra, UsageError
from fxdebug.exports.report.text import Line
from fxdebug.files.write_file import write_bytes
from fxdebug.printable import printable_lines

Axes: TypeAlias = Any  # matplotlib's: it is imported only when a picture is drawn
Figure: TypeAlias = Any
Image: TypeAlias = npt.NDArray[np.float64]
T = TypeVar("T")

MOST_BARS = 15
BLUE, RED, ORANGE = "#2f78ad", "#b0413e", "#d98c3f"
INK, FAINT, FRAME = "#33333a", "#9a9aa5", "#d5d5dc"
BLUES = ("#e3eef9", "#b5d4e9", "#88bcdc", "#559bc8", "#2f78ad")


def kept_of(report: ReportData[Any], needed: T | None, what: str) -> T:
    """Return what a picture shows beside rows and totals. Raises ``UsageError`` where a report has rows and not that.

    The files of reports do not hold it.
    """
    if needed is None or (report.rows and not needed):
        raise UsageError(
            f"this report on {report.analysis} has no {what} to draw: it was read from a file, which does not keep "
            "them, or nothing was measured; draw it where it is made, with report.plot(path) or -o FILE.svg"
        )
    return needed


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = None) -> Figure:
    """Return an empty figure of a size in inches."""
    import matplotlib.figure

    return matplotlib.figure.Figure(figsize=(width, height), layout=layout)


def write_figure(draw: Callable[[], Figure], path: Path) -> Path:
    """Draw a figure and write it to a ``.png``, ``.svg`` or ``.pdf``; raises ``MissingExtra`` without matplotlib."""
    try:
        import matplotlib.backends.backend_agg
    except ImportError as error:
        raise MissingExtra("drawing a report needs matplotlib: pip install 'fxdebug[plot]'") from error
    figure = draw()
    _make_printable(figure)
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
    drawn = io.BytesIO()  # where a file cannot be written, matplotlib raises something else from its clean-up
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # of a token: a box stands for it
        figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    return write_bytes(path, drawn.getvalue())


def _make_printable(figure: Figure) -> None:
    """Make all texts of a figure safe: names of modules may hold control characters, and ``$``, which begins a formula.

    Numbers at axes are formulas of matplotlib's own; names at axes are kept by a formatter, which writes them anew.
    """
    import matplotlib.text
    import matplotlib.ticker

    axes = [axis for one in figure.axes for axis in (one.xaxis, one.yaxis)]
    for axis in axes:
        names = axis.get_major_formatter()
        if isinstance(names, matplotlib.ticker.FuncFormatter):
            names.func = partial(_literal_name, names.func)
    at_ticks = {id(text) for axis in axes for text in axis.get_ticklabels(which="both")}
    for text in figure.findobj(matplotlib.text.Text):
        if id(text) not in at_ticks:
            text.set_text(_literal(text.get_text()))


def _literal_name(name_at: Callable[[float, int | None], str], place: float, position: int | None = None) -> str:
    return _literal(name_at(place, position))


def _literal(text: str) -> str:
    return printable_lines(text).replace("$", r"\$")


def stacked_axes(report: ReportData[Any], title: str, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a title and one axis below the other, of heights in inches."""
    figure = new_figure(10, 0.6 + sum(heights), "constrained")
    write_title(figure, report, title)
    axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=list(heights))
    for (axis,) in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK, labelsize=8)
    return figure, [axis for (axis,) in axes]


def write_title(figure: Figure, report: ReportData[Any], title: str) -> None:
    """Write the model and what is drawn above a figure."""
    figure.suptitle(f"{report.subject}: {title}", x=0.01, ha="left", color=INK, fontsize=12, fontweight="bold")


def plain_axis(axis: Axes, *, left: bool = True) -> None:
    """Leave out the frame of an axis, and its line at the left without ``left``."""
    axis.spines[["top", "right"] if left else ["top", "right", "left"]].set_visible(False)
    axis.tick_params(colors=INK, labelsize=7)


def draw_bars(axis: Axes, lines: Sequence[Line], column: Column, room: float = 1.15) -> None:
    """Draw one number of each line as a bar, from the top down; ``room`` for the numbers at their right."""
    numbers = [float(line[column.field] or 0) for line in lines]
    positions = range(len(lines))
    if not lines:
        axis.set_axis_off()
        axis.text(0, 0.5, "no product in the run: its other operations are not counted", fontsize=8, color=INK)
        return
    axis.barh(positions, numbers, color=BLUES[3], height=0.75)
    for position, number, line in zip(positions, numbers, lines):
        is_count = not column.unit and line[column.field] is not None and number.is_integer()
        text = f"{number:,.0f}" if is_count else line.text(column)  # n/a, and lower bounds as such
        axis.text(number, position, f" {text}", va="center", fontsize=8, color=INK)
    axis.set_yticks(list(positions), [str(line["call"]) for line in lines])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.set_xlim(0, (max(numbers, default=0.0) or 1.0) * room)
    axis.set_xticks([])
    axis.spines["bottom"].set_visible(False)


def column_of(report: ReportData[Any], field: str) -> Column:
    """Return the column of a field."""
    return next(column for column in report.columns if column.field == field)


def number_of_total(report: ReportData[Any], total: str) -> float:
    """Return a total as a number; 0 where it is none."""
    value = report.totals[total][0] if total in report.totals else 0.0
    return float(value) if isinstance(value, (int, float)) else 0.0


def pattern_of(name: str) -> str:
    """Return a name with ``#`` for the numbers in it.

    >>> pattern_of("layer.3.weight")
    'layer.#.weight'
    """
    return ".".join("#" if part.isdigit() else part for part in name.split("."))


def short_name(name: str, width: int = 28) -> str:
    """Return a name that is cut in the middle to ``width`` letters."""
    return shortened_to(name, width, "ends")


def block_max(matrix: Image, most: int) -> Image:
    """Return a matrix with at most ``most`` rows and columns: the largest number of each block.

    >>> import numpy as np
    >>> block_max(np.arange(12.0).reshape(3, 4), 2)
    array([[ 5.,  7.],
           [ 9., 11.]])
    """
    for axis in (0, 1):
        size = matrix.shape[axis]
        if size > most:
            step = math.ceil(size / most)
            matrix = np.maximum.reduceat(matrix, range(0, size, step), axis=axis)
    return matrix
