"""Pictures of reports, by matplotlib: each feature draws its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.errors import FxDebugError, LoadError, UsageError, first_line
from fxdebug.exports.report.figures import Figure, write_figure
from fxdebug.plugins.feature import at
from fxdebug.plugins.features import features


def write_picture(report: ReportData[Any], path: Path) -> Path:
    """Draw a report to a ``.png``, ``.svg`` or ``.pdf``.

    Raises ``MissingExtra`` without matplotlib, ``UsageError`` for an analysis without a picture, and for a report that
    was read from a file where its picture needs more than the rows.
    """
    place = next((one.pictures[report.analysis] for one in features() if report.analysis in one.pictures), None)
    if place is None:
        raise UsageError(f"there is no picture of {report.analysis}: use .csv, .json, .html or .txt")
    return write_figure(lambda: _drawn(at(place), report), path)


def _drawn(draw: Callable[[ReportData[Any]], Figure], report: ReportData[Any]) -> Figure:
    try:
        return draw(report)
    except FxDebugError:
        raise
    except Exception as error:
        if not any(isinstance(row, SimpleNamespace) for row in report.rows):
            raise
        why = f"{type(error).__name__}: {first_line(error)}"  # a file may say that any rows are those of any analysis
        raise LoadError(f"the rows of this file are none that a picture of {report.analysis} shows ({why})") from error
