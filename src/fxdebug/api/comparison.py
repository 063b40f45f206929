"""``Comparison``: the data of a comparison, with methods that show and export it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from fxdebug.analyses.measured_pairs import MeasuredPair, measured_pairs
from fxdebug.api.finding_row import FindingRow, with_repro
from fxdebug.api.page import display
from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.comparison.result import ComparisonData
from fxdebug.exports import registry
from fxdebug.exports.comparison import table, text
from fxdebug.exports.drawing.options import PictureLayout, RankDir, Theme
from fxdebug.narrow_output import as_printed


class ExportOptions(TypedDict, total=False):
    """The options of ``Comparison.export``, which lists them by suffix."""

    fold: bool
    rankdir: RankDir
    layout: PictureLayout
    theme: Theme
    width: int
    check: bool | None


class Comparison(ComparisonData):
    """The comparison of a run ``b`` with a reference ``a``; printing it gives the text of ``fxdebug compare``.

    ``verdict`` is ``equal``, ``different`` or ``could not compare``; ``missing`` says why it could not. ``findings``
    are the calls and operations that add error, the largest effect first where it was measured, else in execution
    order, with settings at the end that change next to nothing beside another finding; ``first`` is the first of them,
    ``None`` where there is none, ``causes`` has those of one cause together. ``rows`` are all
    pairs, ``only_a`` and ``only_b`` the calls without a counterpart. ``coverage`` counts what was compared; ``notes``
    say what to know about it. ``gradients`` is how those of both runs differ, ``None`` where they are equal or not both
    hold some. In a condition it is true when the runs are *equal*.
    """

    a: Trace
    b: Trace
    findings: tuple[FindingRow, ...]

    @classmethod
    def of(cls, data: ComparisonData) -> Comparison:
        """Return the same comparison with these methods."""
        findings, rows = with_repro(data.findings, data.rows)
        facts = {field.name: getattr(data, field.name) for field in fields(data)}
        return cls(**facts | {"findings": findings, "rows": rows})

    @property
    def first(self) -> FindingRow | None:
        """The first finding, or ``None``."""
        return self.findings[0] if self.findings else None

    def export(self, path: str | os.PathLike[str], to: str | None = None, **options: Unpack[ExportOptions]) -> Path:
        """Write the comparison to a file, in the format of its suffix or for the program ``to``; return the path.

        ``.svg .png .pdf .dot .gv``: the graph of b with the findings marked (``fold``; pictures: ``theme``, and
        ``layout="dot"`` or a ``rankdir`` by Graphviz); ``.csv``: every certain row; ``.json``: everything; ``.txt``:
        the text of ``print`` (``width``, ``fold``); ``.html``: the page of both runs, see :meth:`show`; ``.md``: the
        text to paste into an issue; ``model-explorer``: a folder with both graphs, pairs and errors. Raises
        ``UsageError`` for a form that there is not, ``MissingExtra`` where a picture cannot be drawn here.

        >>> import torch, fxdebug, tempfile
        >>> trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fxdebug.compare(trace, trace).export(folder + "/relu.csv").name
        'relu.csv'
        """
        return registry.export("comparison", self, Path(path), to=to, **options)

    def show(self, *, check: bool | None = None) -> display.Page:
        """Open the page of both runs in the browser, or in the cell of a notebook: one file that needs no network.

        It shows the two graphs side by side, in step, with the first operation that adds error and its way onward.
        ``check``: with the findings about the numbers of each run.

            fxdebug.compare(a, b).show()
        """
        return display.show("comparison", self, {"check": check})

    def measures(self, names: str | Sequence[str]) -> Report[MeasuredPair]:
        """Return measures of both runs side by side, for every pair of calls: a, b and b / a.

        ``names`` is a list of measures, or one text with commas. The rows are those of the first measure, the largest
        difference first; ``parts`` are the further ones. Numbers are in seconds, bytes, operations.
        Raises ``UsageError`` for a measure that a run does not have.

        >>> import torch, fxdebug
        >>> a = fxdebug.fx_debug(torch.nn.Linear(4, 3), torch.ones(1, 4))
        >>> b = fxdebug.fx_debug(torch.nn.Linear(4, 3), torch.ones(2, 4))
        >>> row = fxdebug.compare(a, b).measures("flops").rows[0]
        >>> row.a, row.b, row.ratio
        (24, 48, 2.0)
        """
        return Report.of(measured_pairs(self, names))

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

    def csv_text(self) -> str:
        """Return a line for each pair, as CSV: what ``fxdebug compare --csv`` prints and ``export("….csv")`` writes."""
        return table.csv_lines(self)

    def __str__(self) -> str:
        return as_printed(self.text())

    def _repr_html_(self) -> str:
        return text.cell(self)
