"""``Report``: the answer of an analysis, with methods that show, plot, write and compare it."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from fxdebug.data.report import ReportData
from fxdebug.exports import registry
from fxdebug.exports.report import files, text

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
    def of(cls, data: ReportData[Row]) -> Report[Row]:
        """Return the same report with these methods."""
        return cls(**{field.name: getattr(data, field.name) for field in fields(data)})

    def text(self, *, width: int | None = None, color: bool | None = None, rows: int | None = text.ROWS) -> str:
        """Return the report as text, with at most ``rows`` rows (``None``: all of them)."""
        return text.screen(self, width=width, color=color, rows=rows)

    def csv(self, path: str | os.PathLike[str]) -> Path:
        """Write every row as CSV, one column for each field; units are in the headings. Raises ``SaveError``."""
        return registry.export("report", self, Path(path), suffix=".csv")

    def json(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole report as JSON (schema ``fxdebug.report/1``). Raises ``SaveError``."""
        return registry.export("report", self, Path(path), suffix=".json")

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the report to a ``.png``, ``.svg`` or ``.pdf``; needs matplotlib (``fxdebug[plot]``).

        Raises ``MissingExtra`` without matplotlib and ``UsageError`` for an analysis without a picture.
        """
        return registry.export("report", self, Path(path))

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write the report in the format of the suffix: ``.csv .json .txt``, or a picture ``.png .svg .pdf``.

        Raises ``UsageError`` for another suffix, ``SaveError`` where the file cannot be written.
        """
        return registry.export("report", self, Path(path))

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
        return registry.export("report", self, Path(path), suffix=".timeline")

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data, as :meth:`json` writes it."""
        return files.as_json(self)

    def __str__(self) -> str:
        return self.text()
