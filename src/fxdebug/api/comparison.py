"""``Comparison``: the data of a comparison, with methods that show and export it."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from fxdebug.api.trace import Trace
from fxdebug.comparison.result import ComparisonData
from fxdebug.exports import registry
from fxdebug.exports.comparison import table, text
from fxdebug.exports.graphviz.options import RankDir


class ExportOptions(TypedDict, total=False):
    """The options of ``Comparison.export``, which lists them by suffix."""

    fold: bool
    rankdir: RankDir
    width: int


class Comparison(ComparisonData):
    """The comparison of a run ``b`` with a reference ``a``; printing it gives the text of ``fxdebug compare``.

    ``verdict`` is ``equal``, ``different`` or ``could not compare``; ``missing`` says why it could not. ``first`` is
    the first call or operation in execution order that adds error, ``None`` where none was found; ``findings`` are all
    such steps, ``rows`` are all pairs, ``only_a`` and ``only_b`` the calls without a counterpart. ``coverage`` counts
    what was compared; ``notes`` say what to know about it. In a condition it is true when the runs are *equal*.
    """

    a: Trace
    b: Trace

    @classmethod
    def of(cls, data: ComparisonData) -> Comparison:
        """Return the same comparison with these methods."""
        return cls(**{field.name: getattr(data, field.name) for field in fields(data)})

    def export(self, path: str | os.PathLike[str], **options: Unpack[ExportOptions]) -> Path:
        """Write the comparison to a file, in the format of its suffix; return the path.

        ``.svg .png .pdf .dot .gv``: the graph of b with the findings marked (``fold``, ``rankdir``); ``.csv``: every
        certain row; ``.json``: everything; ``.txt`` and ``.html``: the text of ``print`` (``width``, ``fold``). Raises
        ``UsageError`` for another suffix, ``MissingExtra`` where a picture cannot be drawn here.

        >>> import torch, fxdebug, tempfile
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fxdebug.compare(trace, trace).export(folder + "/relu.csv").name
        'relu.csv'
        """
        return registry.export("comparison", self, Path(path), **options)

    def text(self, *, width: int | None = None, color: bool | None = None, fold: bool = True) -> str:
        """Return the text of ``fxdebug compare``; ``width`` and ``color`` default to those of the terminal."""
        return text.screen(self, width=width, color=color, fold=fold)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict, the coverage, the findings and the notes as JSON has them; ``export`` also has all rows.

        >>> import torch, fxdebug
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
        >>> fxdebug.compare(trace, trace).as_json()["verdict"]
        'equal'
        """
        data: dict[str, Any] = table.strict_json(table.summary(self))
        return data

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return text.html(self)
