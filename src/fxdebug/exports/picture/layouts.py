"""Layouts of pictures that features bring, such as that of Graphviz."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fxdebug.errors import UsageError
from fxdebug.exports.drawing.options import DrawOptions
from fxdebug.plugins.feature import Kind
from fxdebug.plugins.features import features, part


def drawn_in(layout: str, kind: Kind) -> Callable[[Any, Path, DrawOptions], Path]:
    """Return the function that draws pictures of a kind in a layout.

    Raises ``UsageError`` where no feature draws such pictures.

    >>> drawn_in("dot", "trace").__name__
    'write_picture'
    """
    for feature in features():
        draw = part(feature, feature.layouts.get((kind, layout), ""))
        if draw is not None:
            return draw  # type: ignore[no-any-return]
    raise UsageError(f"layout={layout!r} is not for a {kind}")
