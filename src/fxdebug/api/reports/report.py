"""``Report``: the answer of an analysis, with methods that show, plot, write and compare it."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from fxdebug.analyses.cost.changes import ChangeLimits, ChangeRow, DifferenceRow, changes
from fxdebug.data.report import ReportData
from fxdebug.exports import registry
from fxdebug.exports.report import files, html, text
from fxdebug.narrow_output import as_printed
from fxdebug.store import report_file

Row = TypeVar("Row", covariant=True)


class Report(ReportData[Row]):
    """The answer of an analysis: ``rows`` with units, ``totals``, ``findings``, ``notes``, ``settings``.

    Printing it gives the text of the command line. ``None`` in a row is a number that could not be measured; a note
    says why.

    >>> import torch, fxdebug
    >>> report = fxdebug.flops(fxdebug.fx_debug(torch.nn.Linear(4, 3), torch.ones(2, 4)))
    >>> report.rows[0].forward, report.totals["multiply-adds"][0]
    (48, 24)
    """

    @classmethod
    def of(cls, data: ReportData[Row]) -> Self:
        """Return the same report with these methods."""
        return cls(**{field.name: getattr(data, field.name) for field in fields(data)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report[SimpleNamespace]:
        """Return a report that :meth:`json` wrote; it can be printed and compared, and has no picture.

        Raises ``LoadError`` for any other file.
        """
        return Report.of(report_file.read(Path(path)))

    def compare(
        self, other: ReportData[object] | str | os.PathLike[str], *, limits: ChangeLimits | None = None
    ) -> Report[ChangeRow | DifferenceRow]:
        """Return what differs from ``other``, the report of an earlier run or the path of its JSON, as a report.

        Of two profiles it names calls that became slower: the medians of their self times differ by more than a tenth
        (``limits`` has the thresholds), the repeats of the two are further apart than they spread, and the
        difference is 1 % of the run or more. A change that most calls share is noted as one of the machine. Of other
        reports it lists the numbers that differ. Rows that are in one report only are listed, too.
        Raises ``UsageError`` for reports of different analyses, ``LoadError`` for a file that is no report.

        >>> import torch, fxdebug
        >>> one, two = (fxdebug.summary(torch.nn.Linear(4, n), torch.ones(2, 4)) for n in (3, 5))
        >>> [(row.row, row.column, row.was, row.now) for row in two.compare(one).rows][-2:]
        [('Linear#0', 'mult-adds', '24 MAC', '40 MAC'), ('Linear#0', 'size', '24 B', '40 B')]
        """
        before = other if isinstance(other, ReportData) else report_file.read(Path(other))
        return Report.of(changes(before, self, ChangeLimits() if limits is None else limits))

    def text(self, *, width: int | None = None, color: bool | None = None, rows: int | None = text.ROWS) -> str:
        """Return the report as text, with at most ``rows`` rows (``None``: all of them)."""
        return text.screen(self, width=width, color=color, rows=rows)

    def csv(self, path: str | os.PathLike[str]) -> Path:
        """Write every row as CSV, one column for each field; units are in the headings. Raises ``SaveError``."""
        return registry.export("report", self, Path(path), to=".csv")

    def json(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole report as JSON (schema ``fxdebug.report/1``). Raises ``SaveError``."""
        return registry.export("report", self, Path(path), to=".json")

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the report to a ``.png``, ``.svg`` or ``.pdf``; needs matplotlib (``fxdebug[plot]``).

        Raises ``MissingExtra`` without matplotlib and ``UsageError`` for an analysis without a picture.
        """
        return registry.export("report", self, Path(path))

    def export(self, path: str | os.PathLike[str], to: str | None = None) -> Path:
        """Write the report in the format of the suffix: ``.csv .json .txt .html``, or a picture ``.png .svg .pdf``.

        ``to``: another form than that of the suffix, or the program that opens it.
        Raises ``UsageError`` for a form that there is not, ``SaveError`` where the file cannot be written.
        """
        return registry.export("report", self, Path(path), to=to)

    def csv_text(self) -> str:
        """Return every row as CSV."""
        return files.csv_text(self)

    def json_text(self) -> str:
        """Return the whole report as JSON text."""
        return files.json_text(self)

    def timeline(self, path: str | os.PathLike[str]) -> Path:
        """Write the calls in time: ``*.speedscope.json`` for speedscope, any other name for Chrome and Perfetto.

        Raises ``UsageError`` for a report without times, ``SaveError`` where the file cannot be written.
        """
        return registry.export("report", self, Path(path), to=".timeline")

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data, as :meth:`json` writes it."""
        return files.as_json(self)

    def __str__(self) -> str:
        return as_printed(self.text())

    def _repr_html_(self) -> str:
        return html.page_part(self)
