"""The rows of a comparison as a table (CSV), and the whole comparison as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TextIO

from fxdebug.comparison.measures import Measures
from fxdebug.comparison.result import ComparisonData, Row, Side
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats
from fxdebug.exports.records import SCHEMAS
from fxdebug.files.write_file import write_text, written_whole
from fxdebug.printable import printable
from fxdebug.query.attach_measures import all_numbers
from fxdebug.query.measures import id_of
from fxdebug.version import __version__

VERSION = 1  # of the JSON: a change that an older reader would misread makes it a new one

_OWN = (
    "position", "verdict", "kind", "path", "op", "source", "error", "error_in", "tolerance", "how", "sure", "because",
    "proven", "repair", "effect",
)  # fmt: skip
_DIFFERENCES = tuple(field.name for field in fields(Measures) if field.name != "error")
_STATS = tuple(field.name for field in fields(Stats))
_SIDE = ("path", "call", "type", "op", "source", "node", "shape", "dtype", *_STATS)
COLUMNS = (*_OWN, *_DIFFERENCES, *(f"{side}_{name}" for side in "ab" for name in _SIDE))


def write_csv(comparison: ComparisonData, path: Path) -> Path:
    """Write the rows in execution order, one line each; columns are :data:`COLUMNS`, empty where nothing is known.

    Measures that analyses took of both runs follow as ``a_time.self``, ``b_time.self`` and so on.
    Pairs that are unsure (:attr:`~fxdebug.comparison.result.Row.certain`) are left out: their numbers say nothing.
    """
    with written_whole(path) as new, new.open("w", newline="", encoding="utf-8") as file:
        _write_rows(comparison, file)
    return path


def csv_lines(comparison: ComparisonData) -> str:
    """Return the rows as CSV, as :func:`write_csv` writes them: what ``fxdebug compare --csv`` prints."""
    text = io.StringIO()
    _write_rows(comparison, text)
    return text.getvalue().replace("\r\n", "\n").rstrip("\n")


def _write_rows(comparison: ComparisonData, file: TextIO) -> None:
    writer = csv.writer(file)
    taken = [name for name in comparison.a.taken if name in comparison.b.taken]
    writer.writerow([*COLUMNS, *(f"{side}_{name}" for name in taken for side in "ab")])
    for row in comparison.rows:
        if row.certain:
            sides = [_measures(comparison.a, row.a), _measures(comparison.b, row.b)]
            writer.writerow([*map(_cell, _flat(row)), *(side.get(name) for name in taken for side in sides)])


def _measures(trace: TraceData, side: Side | None) -> dict[str, float]:
    """Return the numbers that analyses took of one side of a row, by measure."""
    if side is None or not trace.taken:
        return {}
    return all_numbers(trace.taken, id_of(trace, side.call) if side.op is None else side.node or "")


def _flat(row: Row) -> Iterable[Any]:
    yield from (getattr(row, name) for name in _OWN)
    yield from (getattr(row.measures, name) for name in _DIFFERENCES)
    for side in (row.a, row.b):
        known = _side(side) or {}
        stats = known.get("stats") or {}
        yield from (known.get(name, stats.get(name)) for name in _SIDE)


def _cell(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return "×".join(map(str, item))
    return printable(item) if isinstance(item, str) else item


def write_json(comparison: ComparisonData, path: Path) -> Path:
    """Write everything as strict JSON: floats that JSON cannot hold are ``{"float": "inf"}``, as in ``trace.json``.

    ``rows`` has every pair; ``findings`` and ``first`` are positions in it.
    """
    return write_text(path, json.dumps(strict_json(record(comparison)), indent=1, allow_nan=False) + "\n")


def record(comparison: ComparisonData) -> dict[str, Any]:
    """Return a comparison as nested dicts and lists: what :func:`summary` has, with every row."""
    places = {id(row): place for place, row in enumerate(comparison.rows)}
    findings = [places[id(row)] for row in comparison.findings]
    return summary(comparison) | {
        "format": "fxdebug comparison",
        "first": findings[0] if findings else None,
        "findings": findings,
        "chain": [places[id(row)] for row in comparison.chain()],
        "rows": [_row(row) | _taken(comparison, row) for row in comparison.rows],
    }


def summary(comparison: ComparisonData) -> dict[str, Any]:
    """Return the verdict, how much was compared, the findings and the notes: what ``fxdebug compare --json`` prints."""
    coverage = comparison.coverage
    return {
        "schema": SCHEMAS["compare"],
        "format": "fxdebug comparison summary",
        "version": VERSION,
        "fxdebug": __version__,
        "a": _trace(comparison.a),
        "b": _trace(comparison.b),
        "verdict": comparison.verdict,
        "equal": comparison.equal,
        "missing": list(comparison.missing),
        "coverage": {
            **{name: getattr(coverage, name)._asdict() for name in ("calls", "operations", "returned")},
            "share": coverage.share,
            "stand_in": coverage.stand_in,
            "operations_a": [{"path": side.path, "op": side.op} for side in coverage.operations_a],
            "operations_b": [{"path": side.path, "op": side.op} for side in coverage.operations_b],
        },
        "compared": comparison.compared,
        "basis": comparison.basis,
        "findings": [_row(row) for row in comparison.findings],
        "outputs": [_row(row) for row in comparison.outputs],
        "gradients": None if comparison.gradients is None else comparison.gradients.answer,
        "only_a": [_call(call) for call in comparison.only_a],
        "only_b": [_call(call) for call in comparison.only_b],
        "notes": list(comparison.notes),
        "settings": dict(comparison.settings),
    }


def strict_json(item: Any) -> Any:
    """Encode what JSON cannot hold: NaN and infinities, complex numbers, halves of surrogate pairs.

    >>> strict_json({"error": float("inf"), "shape": (2, 3)})
    {'error': {'float': 'inf'}, 'shape': [2, 3]}
    """
    if isinstance(item, dict):
        return {printable(str(key)): strict_json(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [strict_json(value) for value in item]
    if isinstance(item, float):
        return item if math.isfinite(item) else {"float": repr(item)}
    if isinstance(item, complex):
        return {"complex": [strict_json(item.real), strict_json(item.imag)]}
    return printable(item) if isinstance(item, str) else item


def _trace(trace: TraceData) -> dict[str, Any]:
    folder = None if trace.folder is None else str(trace.folder)
    return {"model": trace.model, "folder": folder, "started": trace.started, "calls": len(trace.calls)}


def _row(row: Row) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in _OWN}
    return own | {"measures": asdict(row.measures), "a": _side(row.a), "b": _side(row.b)}


def _taken(comparison: ComparisonData, row: Row) -> dict[str, Any]:
    """Return the measures of both sides, where analyses took any."""
    if not comparison.a.taken and not comparison.b.taken:
        return {}
    return {"taken": {"a": _measures(comparison.a, row.a), "b": _measures(comparison.b, row.b)}}


def _side(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    value = side.value
    known = {
        "path": side.path, "call": side.call.id, "type": side.type, "op": side.op, "source": side.source,
        "node": side.node,
    }  # fmt: skip
    if value is None:
        return known
    stats = None if value.stats is None else asdict(value.stats)
    return known | {"value": value.number, "shape": value.shape, "dtype": value.dtype, "stats": stats}


def _call(call: Call) -> dict[str, Any]:
    return {"call": call.id, "type": call.type, "source": call.source}
