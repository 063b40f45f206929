"""JSON checked against the type hints of the records it is read into.

:func:`reader_of` makes a reader from a type hint: of a number, a text, a list, a mapping, a frozen dataclass (a list of
its fields). A reader takes many cells of the same kind at once, because a check of a whole column costs a tenth of a
check of each cell. A cell of another type raises :class:`Damaged`, which names the place and the type it should have.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import chain, islice
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

Where: TypeAlias = Callable[[int], str]  # the name of the cell at a position, for messages
Reader: TypeAlias = Callable[[Sequence[Any], Where], Sequence[Any]]

LARGEST = 1 << 64  # integers of a record are smaller: sizes, counts, positions, elements of uint64
_MOST = 1e300  # seconds and the like: a product with them stays finite
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for them
_NAMES = {
    int: "an integer", str: "a text", bool: "true or false", float: "a number", list: "a list", dict: "an object",
    type(None): "null",
}  # fmt: skip


class Damaged(ValueError):
    """Content that is not of the stated shape; whoever opened the file says which file it is."""


def damage(where: str, cell: object, expected: str) -> Damaged:
    """Return the error for a cell: its place, its content in short, and what it should be."""
    return Damaged(f"{where} is {shown(cell)}, not {expected}")


def shown(cell: object) -> str:
    """Return a short text for a cell of any size and depth.

    >>> shown("x" * 100), shown(10**100), shown([[], []])
    ("'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'", 'an integer of 333 bits', 'a list of 2')
    """
    if isinstance(cell, str):
        return repr(cell) if len(cell) <= 40 else f"{cell[:40]!r}"[:-1] + "…'"
    if isinstance(cell, (list, dict)):
        return f"{_NAMES[type(cell)]} of {len(cell)}"
    if cell is None or isinstance(cell, bool):
        return "null" if cell is None else str(cell).lower()
    if isinstance(cell, int) and abs(cell) >= LARGEST:
        return f"an integer of {cell.bit_length()} bits"
    return repr(cell)


# Single cells ------------------------------------------------------------------------------------


def of_types(*kinds: type) -> Reader:
    """Return a reader of cells that are exactly of these types, left as they are."""
    allowed = set(kinds)
    expected = " or ".join(_NAMES[kind] for kind in kinds)

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        if not allowed.issuperset(map(type, cells)):
            place = next(i for i, cell in enumerate(cells) if type(cell) not in allowed)
            raise damage(where(place), cells[place], expected)
        return cells

    return read


texts, booleans, lists, objects = (of_types(kind) for kind in (str, bool, list, dict))
_any_integer = of_types(int)
_any_number = of_types(int, float)


def integers(low: int = -LARGEST, high: int = LARGEST) -> Reader:
    """Return a reader of integers from ``low`` up to, not including, ``high``."""

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        _any_integer(cells, where)
        if cells and not low <= min(cells) <= max(cells) < high:
            place = next(i for i, cell in enumerate(cells) if not low <= cell < high)
            expected = f"an integer from {low} to {high - 1}" if high < LARGEST else "an integer of 64 bits"
            raise damage(where(place), cells[place], expected)
        return cells

    return read


def _finite_numbers(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    _any_number(cells, where)
    if cells and not (min(cells) > -_MOST and max(cells) < _MOST):
        place = next(i for i, cell in enumerate(cells) if not -_MOST < cell < _MOST)
        raise damage(where(place), cells[place], "a number of usual size")
    return cells


def reals(cells: Sequence[Any], where: Where) -> Sequence[float]:
    """Return numbers of any size as floats; those that are not finite are written as text: nan, inf, -inf."""
    found = []
    for place, cell in enumerate(cells):
        try:
            number = NOT_FINITE[cell] if isinstance(cell, str) else float(_any_number([cell], where)[0])
        except (KeyError, OverflowError, Damaged):  # an integer of 400 digits is no float
            raise damage(where(place), cell, "a number, or nan, inf or -inf as a text") from None
        found.append(number)
    return found


def one_of(choices: Sequence[Any]) -> Reader:
    """Return a reader of cells that are one of a few texts."""
    allowed = set(choices)

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        texts(cells, where)
        if not allowed.issuperset(cells):
            place = next(i for i, cell in enumerate(cells) if cell not in allowed)
            raise damage(where(place), cells[place], "one of " + ", ".join(map(repr, choices)))
        return cells

    return read


def optional(inner: Reader) -> Reader:
    """Return a reader of cells that may also be ``null``."""

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        if None not in cells:
            return inner(cells, where)
        known = [place for place, cell in enumerate(cells) if cell is not None]
        if not known:
            return cells
        found = list(cells)
        for place, content in zip(known, inner([cells[place] for place in known], lambda i: where(known[i]))):
            found[place] = content
        return found

    return read


def plain(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    """Return the cells as they are: texts, numbers, booleans and null, and lists of these."""
    for place, cell in enumerate(cells):
        inside = cell if type(cell) is list else [cell]
        for leaf in inside:
            if leaf is not None and type(leaf) not in (str, bool, float, int):
                raise damage(where(place), cell, "a text, a number, true, false, null or a list of these")
            if type(leaf) is int:
                _sizes([leaf], lambda _, place=place: where(place))  # type: ignore[misc]
    return cells


_sizes = integers()


# Containers --------------------------------------------------------------------------------------


def _inside(cells: Sequence[Sequence[Any]], where: Where) -> Where:
    """Return the names of the items of all cells, taken one after the other."""

    def name(position: int) -> str:
        for place, cell in enumerate(cells):
            if position < len(cell):
                return f"{where(place)}[{position}]"
            position -= len(cell)
        raise IndexError(position)

    return name


def tuples(inner: Reader) -> Reader:
    """Return a reader of lists of any length, which become tuples."""

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        lists(cells, where)
        items = list(chain.from_iterable(cells))
        found = inner(items, _inside(cells, where))
        if found is items:
            return list(map(tuple, cells))
        each = iter(found)
        return [tuple(islice(each, length)) for length in map(len, cells)]

    return read


def mappings(inner: Reader) -> Reader:
    """Return a reader of objects with any keys."""

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        objects(cells, where)
        items = list(chain.from_iterable([cell.values() for cell in cells]))
        if not items:
            return cells
        keys = list(chain.from_iterable(cells))
        found = inner(items, lambda i: f"{where(_cell_of(cells, i))}[{shown(keys[i])}]")
        each = iter(found)
        return [dict(zip(cell, islice(each, len(cell)))) for cell in cells]

    return read


def _cell_of(cells: Sequence[Mapping[str, Any]], position: int) -> int:
    for place, cell in enumerate(cells):
        if position < len(cell):
            return place
        position -= len(cell)
    raise IndexError(position)


def rows(make: Callable[..., Any], columns: Mapping[str, Reader], defaults: Mapping[str, Any] = {}) -> Reader:
    """Return a reader of lists with one cell for each column; the last ones may be missing where they have a default.

    ``make`` takes the cells, by position.
    """
    readers, names = tuple(columns.values()), tuple(columns)
    needed = len([name for name in names if name not in defaults])
    padding: list[Any] = [[] if defaults.get(name) == () else defaults.get(name) for name in names]
    usual, expected = {len(names)}, f"a list of {len(names)} ({', '.join(names)})"

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        if not cells:
            return []
        lists(cells, where)
        lengths = set(map(len, cells))
        if lengths != usual:
            if min(lengths) < needed or max(lengths) > len(names):
                place = next(i for i, cell in enumerate(cells) if not needed <= len(cell) <= len(names))
                raise damage(where(place), cells[place], expected)
            cells = [cell if len(cell) == len(names) else [*cell, *padding[len(cell) :]] for cell in cells]
        found = []
        for name, reader, column in zip(names, readers, zip(*cells)):
            found.append(reader(column, lambda i, name=name: f"{where(i)}.{name}"))  # type: ignore[misc]
        return list(map(make, *found))

    return read


def records_of(readers: Mapping[str, Reader]) -> Reader:
    """Return a reader of objects with exactly these entries, which become tuples."""

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        objects(cells, where)
        for place, cell in enumerate(cells):
            if missing := [key for key in readers if key not in cell]:
                raise Damaged(f"{where(place)}.{missing[0]} is missing")
        columns = [
            reader([cell[key] for cell in cells], lambda i, key=key: f"{where(i)}.{key}")  # type: ignore[misc]
            for key, reader in readers.items()
        ]
        return list(zip(*columns))

    return read


def table(
    content: Mapping[str, Any], name: str, columns: Mapping[str, Reader], defaults: Mapping[str, Any]
) -> dict[str, Sequence[Any]]:
    """Return the columns of the table ``content[name]``: ``{"columns": names, "rows": lists}``.

    A column that is missing has its default in every row; one that is not known is damage.
    """
    stored = record(content, name, {"columns": tuples(texts), "rows": every})
    names, stored_rows = stored["columns"], stored["rows"]
    unknown = [column for column in names if column not in columns]
    if unknown or len(set(names)) < len(names):
        raise Damaged(f"{name}.columns has {shown((unknown or names)[0])}, which is no field of it, or stands twice")
    lists([stored_rows], lambda _: f"{name}.rows")
    lists(stored_rows, lambda i: f"{name}[{i}]")
    for place, row in enumerate(stored_rows):
        if len(row) != len(names):
            raise Damaged(f"a row of {name} has {len(row)} fields instead of {len(names)}: {name}[{place}]")
    cells = dict(zip(names, zip(*stored_rows) if stored_rows else [()] * len(names)))
    found: dict[str, Sequence[Any]] = {}
    for column, reader in columns.items():
        if column in cells:
            found[column] = reader(cells[column], lambda i, column=column: f"{name}[{i}].{column}")  # type: ignore[misc]
        elif column in defaults or not stored_rows:
            found[column] = [defaults.get(column)] * len(stored_rows)
        else:
            raise Damaged(f"{name} has no column {column!r}")
    return found


def every(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    """Return the cells unread."""
    return cells


def record(
    content: Mapping[str, Any], name: str, readers: Mapping[str, Reader], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the named entries of ``content[name]``, each by its reader (with an empty name of ``content``)."""
    if name and name not in content:
        raise Damaged(f"{name} is missing")
    holder = content[name] if name else content
    if type(holder) is not dict:
        raise damage(name, holder, "an object")
    found = {}
    for key, reader in readers.items():
        place = f"{name}.{key}" if name else key
        if key in holder:
            (found[key],) = reader([holder[key]], lambda _, place=place: place)  # type: ignore[misc]
        elif defaults is None or key not in defaults:
            raise Damaged(f"{place} is missing")
        else:
            found[key] = defaults[key]
    return found


# From type hints ---------------------------------------------------------------------------------


def reader_of(hint: Any, special: Mapping[Any, Reader]) -> Reader:
    """Return the reader for a type hint. ``special``: readers for types that are written in another way."""
    if hint in special:
        return special[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Literal:
        return one_of(arguments)
    if origin in (Union, types.UnionType):
        rest = [part for part in arguments if part is not type(None)]
        inner = _NUMBERS if set(rest) <= {int, float} and len(rest) > 1 else reader_of(rest[0], special)
        if len(rest) > 1 and inner is not _NUMBERS:
            raise TypeError(f"no reader for {hint}")
        return optional(inner) if len(rest) < len(arguments) else inner
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuples(reader_of(arguments[0], special))
    if origin is tuple:
        parts = {f"[{i}]": reader_of(part, special) for i, part in enumerate(arguments)}
        return rows(lambda *cells: cells, parts)
    if origin is not None and issubclass(origin, Mapping):
        return mappings(reader_of(arguments[1], special))
    if is_dataclass(hint):
        return rows(hint, columns_of(hint, special), defaults_of(hint))  # type: ignore[arg-type]
    raise TypeError(f"no reader for {hint}")


def columns_of(
    kind: Any, special: Mapping[Any, Reader], of_field: Mapping[str, Reader] | None = None
) -> dict[str, Reader]:
    """Return the reader of each field of a dataclass; ``of_field``: readers of fields with a form of their own."""
    hints = get_type_hints(kind)
    given = of_field or {}
    return {f.name: given.get(f.name) or reader_of(hints[f.name], special) for f in fields(kind) if f.init}


def defaults_of(kind: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass, by field."""
    found = {}
    for entry in fields(kind):
        if entry.default is not MISSING:
            found[entry.name] = entry.default
        elif entry.default_factory is not MISSING:
            found[entry.name] = entry.default_factory()
    return found


_NUMBERS: Reader = _finite_numbers
_PLAIN: dict[Any, Reader] = {int: _sizes, str: texts, bool: booleans, float: _finite_numbers, Any: plain}
