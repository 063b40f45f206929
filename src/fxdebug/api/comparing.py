"""Two runs side by side: compare traces, saved runs, or two live models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fxdebug.api.files import load
from fxdebug.comparison import Comparison
from fxdebug.trace import Trace


def compare(
    a: Trace | str | os.PathLike[str],
    b: Trace | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
) -> Comparison:
    """Hold a run ``b`` against a reference ``a``: see :func:`fxdebug.comparison.compare`. Paths are loaded.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> compare(trace, trace).equal
    True
    """
    from fxdebug.comparison import compare as compared

    one, other = (trace if not isinstance(trace, (str, os.PathLike)) else load(trace) for trace in (a, b))
    return compared(one, other, mapping=mapping, ignore=ignore, tolerance=tolerance)


def comparison_text(comparison: Comparison, **options: Any) -> str:
    """A comparison on one screen: see :func:`fxdebug.exports.comparison_text.screen`."""
    from fxdebug.exports import comparison_text as as_text

    return as_text.screen(comparison, **options)


def comparison_html(comparison: Comparison) -> str:
    """A comparison as a piece of HTML: see :func:`fxdebug.exports.comparison_text.html`."""
    from fxdebug.exports import comparison_text as as_text

    return as_text.html(comparison)


def export_comparison(comparison: Comparison, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write a comparison for other programs and for eyes, by suffix; return the path.

    ``.svg .png .pdf .dot .gv``: the graph of b with the findings marked (``fold``, ``rankdir``); ``.csv``: every row;
    ``.json``: everything; ``.txt`` and ``.html``: the screen (``width``, ``fold``). Raises ``UsageError`` for another
    suffix, ``MissingExtra`` where a picture cannot be drawn here.
    """
    from fxdebug.exports import comparisons, registry

    return registry.export(comparison, Path(path), table=comparisons.EXPORTERS, **options)
