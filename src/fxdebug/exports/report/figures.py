"""Figures of matplotlib, the extra ``plot``: make an empty one, write one to a file. Nothing asks for a screen."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fxdebug.errors import MissingExtra
from fxdebug.files.write_file import write_bytes

Axes: TypeAlias = Any  # matplotlib's: it is imported only when a picture is drawn
Figure: TypeAlias = Any

INK, FAINT, FRAME = "#33333a", "#9a9aa5", "#d5d5dc"
BLUES = ("#e3eef9", "#b5d4e9", "#88bcdc", "#559bc8", "#2f78ad")


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
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
    drawn = io.BytesIO()  # where a file cannot be written, matplotlib raises something else from its clean-up
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # of a token: a box stands for it
        figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    return write_bytes(path, drawn.getvalue())
