"""Figures of matplotlib, the extra ``plot``: make an empty one, write one to a file. Nothing asks for a screen."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from fxdebug.data.report import ReportData
from fxdebug.errors import MissingExtra, UsageError
from fxdebug.files.write_file import write_bytes
from fxdebug.printable import printable_lines

Axes: TypeAlias = Any  # matplotlib's: it is imported only when a picture is drawn
Figure: TypeAlias = Any
T = TypeVar("T")

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
