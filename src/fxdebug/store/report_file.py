"""The JSON of a report, read back: every cell is compared with its type, and nothing in it is run or looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from fxdebug.data.calls import Note
from fxdebug.data.findings import SEVERITIES, Finding
from fxdebug.data.measures import Unit
from fxdebug.data.report import Column, ReportData, Shared
from fxdebug.errors import LoadError
from fxdebug.files.read_file import read_text
from fxdebug.files.schema import (
    NOT_FINITE,
    Damaged,
    Where,
    booleans,
    damage,
    integers,
    lists,
    mappings,
    objects,
    of_types,
    one_of,
    optional,
    reals,
    record,
    rows,
    shown,
    texts,
    tuples,
)
from fxdebug.files.system_errors import system_errors_told
from fxdebug.store.deep_json import loads
from fxdebug.store.versioned_json import require_version

_NAME, _VERSION = "fxdebug.report", 1
SCHEMA = f"{_NAME}/{_VERSION}"

_UNITS = one_of(get_args(Unit))
_any_scalar = of_types(str, bool, int, float, type(None))


def _numbers(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    """Return numbers as they are, and those that are not finite, which are written as text, as numbers."""
    reals(cells, where)
    return [NOT_FINITE[cell] if isinstance(cell, str) else cell for cell in cells]


def _scalars(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    _any_scalar(cells, where)
    for place, cell in enumerate(cells):
        if type(cell) is int:
            reals([cell], lambda _, place=place: where(place))  # type: ignore[misc]
    return cells


_COLUMN = {
    **dict.fromkeys(("field", "heading", "about", "at_least"), texts),
    "unit": _UNITS,
    "adds": booleans,
    "shown": booleans,
    "quotient": optional(rows(lambda *fields: fields, {"above": texts, "below": texts})),
}
_COLUMN_DEFAULTS = {"about": "", "adds": False, "shown": True, "quotient": None, "at_least": ""}
_FINDING = {
    **dict.fromkeys(("rule", "path", "call", "op", "node", "what", "advice"), texts),
    "severity": one_of(SEVERITIES),
    "source": optional(texts),
    "measured": optional(_numbers),
    "threshold": optional(_numbers),
    "unit": _UNITS,
    "reached": integers(0),
    "output": booleans,
    "absorbed": tuples(texts),
    "others": tuples(texts),
    "analysis": texts,
}
_REPORT = {
    "analysis": texts,
    "subject": texts,
    "settings": mappings(_scalars),
    "totals": objects,
    "columns": lists,
    "rows": lists,
    "parts": lists,
    "measures": mappings(mappings(_numbers)),
    "findings": lists,
    "notes": lists,
    "ranked": booleans,
    "ranked_by": tuples(texts),
    "folds": booleans,
    "at_least": tuples(texts),
    "answer": texts,
    "shared": optional(lambda cells, where: [_shared(cell, where(i)) for i, cell in enumerate(cells)]),
}
_DEFAULTS = {
    "ranked": True,
    "ranked_by": (),
    "folds": True,
    "at_least": (),
    "shared": None,
    "answer": "",
}  # of earlier versions


def read(path: Path) -> ReportData[SimpleNamespace]:
    """Return the report in a file that ``report.json(path)`` wrote; its rows have the columns as attributes.

    Spans and series are not in the file. Raises ``LoadError`` for any other content, with the file and the place.
    """
    with system_errors_told(path):
        return _content_of(path)


def _content_of(path: Path) -> ReportData[SimpleNamespace]:
    text = read_text(path, "the JSON of a report")
    try:
        content = loads(text)
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            name, _, number = str(schema).partition("/")
            if name == _NAME and number.isdecimal() and len(number) < 10:
                require_version(path, int(number), _VERSION, "make the report again")
            raise Damaged(f"its schema is not {SCHEMA!r}: write one with report.json(path)")
        return _report(content, "", parts=True)
    except LoadError:
        raise
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path} is no report that can be read: {error}") from error


def _report(content: Mapping[str, Any], name: str, *, parts: bool) -> ReportData[SimpleNamespace]:
    found = record({name: content} if name else content, name, _REPORT, _DEFAULTS)
    columns = _columns(found["columns"], f"{name}.columns" if name else "columns")
    inner = found["parts"] if parts else []
    if any(type(part) is not dict for part in inner):
        raise Damaged("parts has an item that is no object")
    named = {*found["ranked_by"], *(column.at_least for column in columns), *(found["shared"] or _NOTHING).numbers}
    if unknown := named - {"", *(column.field for column in columns)}:
        raise Damaged(f"{shown(min(unknown))} is named as a column, and there is none")
    return ReportData(
        analysis=found["analysis"],
        subject=found["subject"],
        columns=columns,
        rows=tuple(_rows(found["rows"], columns, f"{name}.rows" if name else "rows")),
        totals=_totals(found["totals"]),
        findings=tuple([_finding(each, f"findings[{i}]") for i, each in enumerate(found["findings"])]),
        notes=tuple([_note(each, f"notes[{i}]") for i, each in enumerate(found["notes"])]),
        settings=found["settings"],
        measures=found["measures"],
        parts=tuple([_report(part, f"parts[{i}]", parts=False) for i, part in enumerate(inner)]),
        **{name: found[name] for name in _DEFAULTS},
    )


def _columns(stored: Sequence[Any], name: str) -> tuple[Column, ...]:
    columns = [
        Column(**record({f"{name}[{i}]": each}, f"{name}[{i}]", _COLUMN, _COLUMN_DEFAULTS))
        for i, each in enumerate(stored)
    ]
    fields = [column.field for column in columns]
    others = [name for column in columns for name in column.quotient or () if name not in fields]
    if others:
        raise Damaged(f"{name} has a quotient of {others[0]!r}, which is no field")
    wrong = next((field for field in fields if not field.isidentifier() or field.startswith("_")), None)
    if wrong is not None or len(set(fields)) < len(fields):
        raise Damaged(f"{name} has {wrong!r} as a field" if wrong is not None else f"{name} has a field twice")
    return tuple(columns)


def _rows(stored: Sequence[Any], columns: Sequence[Column], name: str) -> Sequence[SimpleNamespace]:
    objects(stored, lambda i: f"{name}[{i}]")
    fields = [column.field for column in columns]
    for place, row in enumerate(stored):
        if row.keys() != set(fields):
            raise damage(f"{name}[{place}]", row, f"an object with {', '.join(fields)}")
    found: dict[str, Sequence[Any]] = {}
    for column in columns:
        cells, place_of = [row[column.field] for row in stored], _place(name, column.field)
        _scalars(cells, place_of)
        if column.adds:
            optional(_numbers)(cells, place_of)
        known = [NOT_FINITE.get(cell, cell) if type(cell) is str else cell for cell in cells]
        is_name = column is columns[0] or any(type(cell) is str for cell in known)  # "inf" may be that of a module
        of_numbers = column.unit or any(type(cell) in (int, float) for cell in cells)
        found[column.field] = known if of_numbers or not is_name else cells
    return [SimpleNamespace(**dict(zip(found, cells))) for cells in zip(*found.values())]


def _place(name: str, field: str) -> Where:
    return lambda i: f"{name}[{i}].{field}"


def _shared(stored: Any, name: str) -> Shared:
    found = record({name: stored}, name, {"of": mappings(tuples(integers(0))), "numbers": mappings(tuples(_numbers))})
    count = max([piece + 1 for pieces in found["of"].values() for piece in pieces], default=0)
    if any(len(numbers) < count for numbers in found["numbers"].values()):
        raise Damaged(f"{name}.numbers has fewer than {count} numbers")
    return Shared(found["of"], found["numbers"])


_NOTHING = Shared({}, {})


def _totals(stored: Mapping[str, Any]) -> dict[str, tuple[Any, Unit]]:
    totals: dict[str, tuple[Any, Unit]] = {}
    for heading, content in stored.items():
        total = record({"totals": content}, "totals", {"value": _scalars, "unit": _UNITS})
        value = total["value"]
        totals[heading] = NOT_FINITE.get(value, value) if type(value) is str else value, total["unit"]
    return totals


def _finding(stored: Any, name: str) -> Finding:
    return Finding(**record({name: stored}, name, _FINDING, {"analysis": ""}))


def _note(stored: Any, name: str) -> Note:
    note = record({name: stored}, name, {"what": texts, "where": texts})
    return Note(note["what"], note["where"])
