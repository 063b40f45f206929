"""Rows of one kind as columns: constant values are written once, numbers take three bytes, all is packed as text.

A table of a step is an object: ``rows`` is their number, ``columns`` has the columns that differ from those of the
table before, ``numbers`` what is packed of those that are numbers.
"""

from __future__ import annotations

import base64
import json
import math
import types
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from fxdebug.files.schema import Damaged, damage, integers, objects, texts

Cell: TypeAlias = "int | float | str | bool | list[Any] | None"
Column: TypeAlias = "list[Cell]"
NONE = 0x7FC001  # the upper three bytes of a NaN that stands for None
MOST_ROWS = 1 << 20
_LARGEST, _EXPONENT = 3e38, 0x7F800000  # of float32
MOST_BYTES = 1 << 28
_SET = "rate"
_LARGER = "absmax"  # nearly always that of the smallest and the largest
_LONG = 300  # characters, from which on a column is packed
_FEW = 8  # rows for each value, from which on values are written once, and where they stand


def rounded(number: float) -> float:
    """Return a number that three bytes hold: 16 binary digits, which are nearly 5 decimal ones.

    >>> rounded(0.1), rounded(3.0), rounded(1e300)
    (0.10000038146972656, 3.0, 1e+300)
    """
    if number != number or math.isinf(number):
        return number
    if not 1e-37 < abs(number) < _LARGEST:
        return number
    return _of_three(_three([number])[0])


def with_rounded(record: Any) -> Any:
    """Return a record whose numbers are rounded, as are those of records in it; rates, which are set, are not."""
    if type(record) is float:
        return rounded(record)
    if isinstance(record, tuple):
        return tuple(map(with_rounded, record)) if record and not isinstance(record[0], (int, str)) else record
    if is_dataclass(record) and not isinstance(record, type):
        kinds = _fields(type(record))
        values = [(name, getattr(record, name)) for name, _ in kinds]
        return type(record)(*[value if name == _SET else with_rounded(value) for name, value in values])
    return record


def _three(numbers: Sequence[float]) -> list[int]:
    """Return the upper three bytes of numbers as float32, to the nearest."""
    bits = array("I", array("f", [one if -_LARGEST < one < _LARGEST else _kept(one) for one in numbers]).tobytes())
    return [(one + 0x80) >> 8 if one & _EXPONENT != _EXPONENT else one >> 8 for one in bits]


def _kept(number: float) -> float:
    return math.nan if number != number else math.copysign(math.inf, number)


def _of_three(bits: int) -> float:
    return array("f", array("I", [bits << 8]).tobytes())[0]


class Columns:
    """Writes the tables of one file, or reads them: it knows the columns of the table before."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, Column]] = {}

    def packed(self, name: str, records: Sequence[Any]) -> dict[str, Any]:
        """Return the table of records of one dataclass."""
        before = self._before.setdefault(name, {})
        columns: dict[str, Any] = {}
        numbers: dict[str, list[int]] = {}
        found = _columns_of(records)
        for key, column in found.items():
            if before.get(key) == column:
                continue
            if key.endswith(_LARGER) and column == _larger(found, key):
                columns[key] = None
            elif any(type(cell) is float for cell in column) and len(set(column)) * _FEW > len(column):
                numbers[key], others = _as_numbers(column)
                columns[key] = {"numbers": others}
            else:
                columns[key] = _shorter(_few(column))
        self._before[name] = found
        return {"rows": len(records), "columns": columns, "numbers": _text(numbers.values())}

    def unpacked(self, name: str, kind: type, content: Mapping[str, Any], where: str) -> list[Any]:
        """Return the rows of a table as lists of cells, as a row of ``kind`` is read. Raises ``Damaged``."""
        (content,) = objects([content], lambda _: where)
        rows = integers(0, MOST_ROWS)([content.get("rows")], lambda _: f"{where}.rows")[0]
        (written,) = objects([content.get("columns")], lambda _: f"{where}.columns")
        named = [key for key, column in written.items() if isinstance(column, dict) and "numbers" in column]
        numbers = iter(_numbers(content.get("numbers"), rows * len(named), f"{where}.numbers"))
        before = self._before.setdefault(name, {})
        for key, column in written.items():
            if key in named:
                cells = [next(numbers) for _ in range(rows)]
                before[key] = _with_others(cells, column["numbers"], f"{where}.{key}")
            elif column is None and key.endswith(_LARGER) and all(_inner(before, key, rows)):
                before[key] = _larger(before, key)
            else:
                before[key] = _all(column, rows, f"{where}.{key}")
        leaves = [_column(before, key, rows, where) for key in _keys(kind)]
        return [_row(kind, iter(cells)) for cells in zip(*leaves)]


# Columns of records ------------------------------------------------------------------------------


def _keys(kind: type, before: str = "") -> list[str]:
    found: list[str] = []
    for name, inner in _fields(kind):
        found += [before + name] if inner is None else _keys(inner, f"{before}{name}.")
    return found


_KNOWN: dict[type, list[tuple[str, type | None]]] = {}


def _fields(kind: type) -> list[tuple[str, type | None]]:
    """Return the fields of a dataclass, each with the dataclass that it holds, or ``None``."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind)
        _KNOWN[kind] = [(one.name, _dataclass_in(hints[one.name])) for one in fields(kind)]
    return _KNOWN[kind]


def _dataclass_in(hint: Any) -> type | None:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next((one for one in options if isinstance(one, type) and is_dataclass(one)), None)


def _columns_of(records: Sequence[Any]) -> dict[str, Column]:
    found: dict[str, Column] = {}
    if records:
        _add(type(records[0]), list(records), "", found)
    return found


def _add(kind: type, records: Sequence[Any], before: str, found: dict[str, Column]) -> None:
    """Add the columns of records; where there is none, its cells are ``None``."""
    for name, inner in _fields(kind):
        cells = [None if one is None else getattr(one, name) for one in records]
        if inner is not None:
            _add(inner, cells, f"{before}{name}.", found)
        else:
            found[before + name] = [_plain(cell) for cell in cells]


def _plain(cell: Any) -> Cell:
    if isinstance(cell, complex):
        return abs(cell)
    return [_plain(one) for one in cell] if isinstance(cell, (tuple, list)) else cell


def _row(kind: type, cells: Any) -> list[Any] | None:
    """Return the cells of one row, as a list with a list for each record in it; ``None`` where its first cell is."""
    row = [next(cells) if inner is None else _row(inner, cells) for _, inner in _fields(kind)]
    return None if row[0] is None else row


def _column(before: Mapping[str, Column], key: str, rows: int, where: str) -> Column:
    if rows == 0:
        return []
    if key not in before or len(before[key]) != rows:
        raise Damaged(f"{where}.columns has no {key} of {rows} rows, and no table before it has")
    return before[key]


def _larger(columns: Mapping[str, Column], key: str) -> Column:
    """Return the largest magnitudes, of columns with the smallest and the largest number."""
    low, high = (columns[key.removesuffix(_LARGER) + name] for name in ("min", "max"))
    return [
        max(abs(a), abs(b)) if isinstance(a, (int, float)) and isinstance(b, (int, float)) else None
        for a, b in zip(low, high)
    ]


def _inner(columns: Mapping[str, Column], key: str, rows: int) -> list[bool]:
    return [len(columns.get(key.removesuffix(_LARGER) + name, ())) == rows for name in ("min", "max")]


# Columns as text ---------------------------------------------------------------------------------


def _few(column: Column) -> Any:
    """Return a column as its different values and where they stand, if these are few; else as it is."""
    column = [_finite(cell) for cell in column]
    different: dict[str, Cell] = {json.dumps(cell): cell for cell in column}
    if len(different) > 255 or len(different) * _FEW > len(column):
        return column
    places = {text: place for place, text in enumerate(different)}
    at = bytes([places[json.dumps(cell)] for cell in column]) if len(different) > 1 else b""
    return {"of": list(different.values()), "at": _packed(at)}


def _shorter(column: Any) -> Any:
    text = json.dumps(column, separators=(",", ":"))
    return {"packed": _packed(text.encode()), "bytes": len(text)} if len(text) > _LONG else column


def _longer(column: Mapping[str, Any], where: str) -> Any:
    most = integers(0, MOST_BYTES)([column.get("bytes")], lambda _: f"{where}.bytes")[0]
    try:
        return json.loads(_unpacked(column["packed"], most, where))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, Damaged) else Damaged(f"{where} is no JSON: {error}") from None


def _all(column: Any, rows: int, where: str) -> Column:
    """Return every cell of a column that is no packed one."""
    if isinstance(column, dict) and "packed" in column:
        column = _longer(column, where)
    if isinstance(column, dict):
        of = column.get("of")
        if not isinstance(of, list) or not of:
            raise damage(f"{where}.of", of, "a list with values")
        at = _unpacked(column.get("at"), rows, f"{where}.at") or bytes(rows)
        if len(at) != rows or max(at, default=0) >= len(of):
            raise Damaged(f"{where}.at does not say where {rows} values of {len(of)} stand")
        return [of[place] for place in at]
    if not isinstance(column, list) or len(column) != rows:
        raise damage(where, column, f"a list of {rows}")
    return column


def _as_numbers(column: Column) -> tuple[list[int], list[list[Any]]]:
    """Return cells in three bytes each, and places with cells that these do not hold."""
    floats = [cell if type(cell) is float else 0.0 for cell in column]
    bits = _three(floats)
    others: list[list[Any]] = []
    for place, (cell, one) in enumerate(zip(column, bits)):
        if cell is None:
            bits[place] = NONE
        elif type(cell) is not float or not _is_held(cell, one):
            others.append([place, _finite(cell)])
    return bits, others


def _finite(cell: Cell) -> Cell:
    return str(cell) if type(cell) is float and not math.isfinite(cell) else cell


def _is_held(number: float, bits: int) -> bool:
    held = _of_three(bits)
    return held == number or (held != held and number != number)


def _with_others(cells: Column, others: Any, where: str) -> Column:
    for other in others if isinstance(others, list) else [None]:
        if (
            not isinstance(other, list)
            or len(other) != 2
            or type(other[0]) is not int
            or not 0 <= other[0] < len(cells)
        ):
            raise damage(where, other, f"a place among {len(cells)}, and a number")
        cells[other[0]] = other[1]
    return cells


def _text(columns: Any) -> str:
    """Return numbers of three bytes: all first bytes, all second ones, all third ones, as these are alike."""
    every = [one for column in columns for one in column]
    return _packed(b"".join(bytes([one >> shift & 0xFF for one in every]) for shift in (16, 8, 0)))


def _numbers(text: Any, count: int, where: str) -> Column:
    found = _unpacked(text, 3 * count, where)
    if len(found) != 3 * count:
        raise Damaged(f"{where} has {len(found)} bytes, not 3 for each of {count} numbers")
    every = zip(found[:count], found[count : 2 * count], found[2 * count :])
    bits = [high << 16 | middle << 8 | low for high, middle, low in every]
    floats = array("f", array("I", [one << 8 for one in bits]).tobytes())
    return [None if one == NONE else number for one, number in zip(bits, floats)]


def _packed(content: bytes) -> str:
    return base64.b85encode(zlib.compress(content, 6)).decode() if content else ""


def _unpacked(text: Any, most: int, where: str) -> bytes:
    (text,) = texts([text], lambda _: where)
    if not text:
        return b""
    unpack = zlib.decompressobj()
    try:
        found = unpack.decompress(base64.b85decode(text), most + 1)
    except (ValueError, zlib.error):
        raise damage(where, text, "packed bytes") from None
    if len(found) > most or not unpack.eof:
        raise Damaged(f"{where} does not hold {most} bytes")
    return found
