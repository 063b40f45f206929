"""A report as files for other programs: every row as CSV, everything as JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fxdebug.data.findings import number_as_json
from fxdebug.data.report import ReportData
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable_cells, printable_json
from fxdebug.store.report_file import SCHEMA


def as_json(report: ReportData[Any]) -> dict[str, Any]:
    """Return a report as plain data. Numbers are in the unit of their column; infinite ones and NaN are text."""
    return {
        "schema": SCHEMA,
        "analysis": report.analysis,
        "subject": report.subject,
        "answer": report.answer,
        "settings": {name: number_as_json(value) for name, value in report.settings.items()},
        "totals": {name: {"value": number_as_json(x), "unit": unit} for name, (x, unit) in report.totals.items()},
        "columns": [asdict(column) for column in report.columns],
        "rows": [{name: number_as_json(x) for name, x in report.cells(row).items()} for row in report.rows],
        "parts": [as_json(part) for part in report.parts],
        "measures": {
            name: {place: number_as_json(x) for place, x in numbers.items()}
            for name, numbers in report.measures.items()
        },
        "findings": [finding.as_json() for finding in report.findings],
        "notes": [{"what": note.what, "where": note.where} for note in report.notes],
        "ranked": report.ranked,
        "ranked_by": list(report.ranked_by),
        "folds": report.folds,
        "at_least": list(report.at_least),
        "shared": None if report.shared is None else asdict(report.shared),
    }


def json_text(report: ReportData[Any]) -> str:
    """Return a report as JSON text."""
    return printable_json(json.dumps(as_json(report), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def csv_text(report: ReportData[Any]) -> str:
    """Return every row as CSV, with a heading per column: its field and its unit (``time_self [s]``)."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(printable_cells(f"{c.field} [{c.unit}]" if c.unit else c.field for c in report.columns))
    for row in report.rows:
        writer.writerow(printable_cells("" if x is None else x for x in report.cells(row).values()))
    return output.getvalue()


def write_json(report: ReportData[Any], path: Path) -> Path:
    """Write a report as JSON."""
    return write_text(path, json_text(report))


def write_csv(report: ReportData[Any], path: Path) -> Path:
    """Write every row as CSV."""
    return write_text(path, csv_text(report))
