"""Items (arguments, results) and records (values, calls, parameters) as JSON, both ways.

A record is a list of its fields in the order of their columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import isfinite, prod
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from fxdebug.data.calls import Call, Failure, Parameter
from fxdebug.data.graphs import Op, Ref
from fxdebug.data.values import (
    LONGEST_INT_BITS,
    Group,
    Inputs,
    Item,
    Outputs,
    Sharding,
    Stats,
    Thing,
    Value,
    canonical_nan,
    fast_constructor,
)
from fxdebug.files.schema import (
    LARGEST,
    Damaged,
    Reader,
    Where,
    columns_of,
    damage,
    defaults_of,
    integers,
    mappings,
    optional,
    rows,
    shown,
    table,
    texts,
    tuples,
)
from fxdebug.store.deep_json import dumps

VALUE_COLUMNS = tuple(f.name for f in fields(Value))
CALL_COLUMNS = tuple(f.name for f in fields(Call) if f.init)
PARAMETER_COLUMNS = tuple(f.name for f in fields(Parameter))

_quick_value, _quick_stats, _quick_call = fast_constructor(Value), fast_constructor(Stats), fast_constructor(Call)
_quick_inputs, _quick_outputs = fast_constructor(Inputs), fast_constructor(Outputs)
_cells_of_value, _cells_of_call, _cells_of_parameter = (
    attrgetter(*VALUE_COLUMNS),
    attrgetter(*CALL_COLUMNS),
    attrgetter(*PARAMETER_COLUMNS),
)
_cells_of_stats, _cells_of_sharding = (attrgetter(*[f.name for f in fields(kind)]) for kind in (Stats, Sharding))
_TENSOR_REFERENCE = re.compile(r"tensors-\d{1,9}\.safetensors#(v\d{1,18}|data)")  # in the same folder
MOST_DIMS = 1_000
DEEPEST_OPERAND = 300  # containers in containers: a recording follows 200
_DEEPEST_KEY = 100  # a key is hashed, compared and shown by Python, which recurses


# Items ⇄ JSON ------------------------------------------------------------------------------------
# None, bool, str, int and finite floats are themselves; everything else is an object with a key that names its kind.


def item_to_json(item: Item) -> Any:
    """Return the JSON of any item; a value is a reference to its number."""
    if not isinstance(item, Group):
        return _leaf_to_json(item)
    top: dict[str, Any] = {}
    pending = [(item, top)]

    def begun(inner: Item) -> Any:
        if not isinstance(inner, Group):
            return _leaf_to_json(inner)
        coded: dict[str, Any] = {}
        pending.append((inner, coded))
        return coded

    while pending:  # no recursion: containers may be nested deeper than Python's stack allows
        group, coded = pending.pop()
        coded[group.kind] = group.type
        coded["items"] = [begun(inner) for inner in group.items]
        if group.keys is not None:
            coded["keys"] = [begun(key) for key in group.keys]
        if group.text is not None:
            coded["text"] = group.text
        if group.number is not None:
            coded["number"] = group.number
    return top


def _leaf_to_json(item: Value | Thing | bool | int | float | complex | str | bytes | None) -> Any:
    if isinstance(item, Value):
        return {"value": item.number}
    if item is None or isinstance(item, (int, str)):
        return item
    if isinstance(item, float):
        return item if isfinite(item) else {"float": repr(item)}
    if isinstance(item, Thing):
        return {"thing": item.type, "text": item.text, "number": item.number}
    if isinstance(item, complex):
        return {"complex": [_leaf_to_json(item.real), _leaf_to_json(item.imag)]}
    return {"bytes": item.hex()}


def item_from_json(coded: Any, values: Sequence[Value], *, operands: bool = False) -> Item:
    """Return the item from the JSON of :func:`item_to_json`. Raises :class:`Damaged`.

    ``operands``: results of other nodes of a graph may be inside (``{"node": name}``).
    """
    if _container_kind(coded) is None:
        return _leaf_from_json(coded, values, operands)
    groups: list[dict[str, Any]] = [coded]
    last_of_level = levels = 0
    key_levels: dict[int, int] = {}  # of containers that are keys, or in one
    for place, outer in enumerate(groups):  # the list grows meanwhile: containers inside come after their holder
        if place > last_of_level:
            last_of_level, levels = len(groups) - 1, levels + 1
            if operands and levels > DEEPEST_OPERAND:
                raise Damaged(f"has containers more than {DEEPEST_OPERAND} deep")
        items, keys = outer.get("items"), outer.get("keys")
        if type(items) is not list or (keys is not None and (type(keys) is not list or len(keys) != len(items))):
            raise Damaged("is a container whose items and keys are not lists of the same length")
        above = key_levels.get(id(outer), 0)
        for is_key, inner in (*((False, inner) for inner in items), *((True, key) for key in keys or ())):
            if _container_kind(inner) is not None:
                groups.append(inner)
                if is_key or above:
                    key_levels[id(inner)] = above + 1
                    if above >= _DEEPEST_KEY:
                        raise Damaged(f"has a key of containers more than {_DEEPEST_KEY} deep")
    groups_by_id: dict[int, Group] = {}

    def item(inner: Any) -> Item:
        return groups_by_id[id(inner)] if id(inner) in groups_by_id else _leaf_from_json(inner, values, operands)

    for group in reversed(groups):
        kind, keys = _container_kind(group), group.get("keys")
        assert kind is not None
        groups_by_id[id(group)] = Group(
            kind,
            _entry(group, kind, str),
            tuple([item(inner) for inner in group["items"]]),
            None if keys is None else tuple([item(key) for key in keys]),
            _entry(group, "text", str, type(None)),
            _number_of(group),
        )
    return groups_by_id[id(coded)]


def _container_kind(coded: Any) -> str | None:
    """Return the kind of a container; ``None`` for anything else."""
    if not isinstance(coded, dict) or "value" in coded:
        return None
    return next((kind for kind in ("sequence", "mapping", "object") if kind in coded), None)


def _entry(coded: dict[str, Any], key: str, *kinds: type) -> Any:
    content = coded.get(key)
    if type(content) not in kinds:
        raise Damaged(f"has {key!r}: {shown(content)}")
    return content


def _number_of(coded: dict[str, Any]) -> int | None:
    number: int | None = _entry(coded, "number", int, type(None))
    if number is not None and not 0 <= number < LARGEST:
        raise Damaged(f"has 'number': {shown(number)}")
    return number


def _leaf_from_json(coded: Any, values: Sequence[Value], operands: bool = False) -> Any:
    if not isinstance(coded, dict):
        if type(coded) is int and coded.bit_length() > LONGEST_INT_BITS:
            raise Damaged(f"is {shown(coded)}")
        if type(coded) is list:
            raise Damaged("is a list, not an item")
        return coded
    if "value" in coded:
        number = coded["value"]
        if type(number) is not int or not 0 <= number < len(values):
            raise Damaged(f"is value {shown(number)} of {len(values)}")
        return values[number]
    if "thing" in coded:
        return Thing(_entry(coded, "thing", str), _entry(coded, "text", str), _number_of(coded))
    if "float" in coded:
        return _float_from_json(coded)
    if "complex" in coded:
        parts = _entry(coded, "complex", list)
        if len(parts) != 2:
            raise Damaged("is a complex number of other than two parts")
        return canonical_nan(complex(*map(_float_from_json, parts)))
    if "bytes" in coded:
        try:
            return bytes.fromhex(_entry(coded, "bytes", str))
        except ValueError:
            raise Damaged("has bytes that are not hexadecimal") from None
    if operands and "node" in coded:
        return Ref(_entry(coded, "node", str))
    raise Damaged("is an object of no known kind")


def _float_from_json(coded: Any) -> float:
    if type(coded) is float:
        return coded
    if type(coded) is int and abs(coded) < LARGEST:
        return float(coded)
    text = coded.get("float") if type(coded) is dict else None
    if text not in ("nan", "inf", "-inf"):
        raise Damaged(f"has {shown(coded if text is None else text)} for a number")
    return float(canonical_nan(float(text)))


def items_reader(values: Sequence[Value], *, operands: bool = False) -> Reader:
    """Return the reader of items that refer to these values."""
    count = len(values)

    def read(cells: Sequence[Any], where: Where) -> list[Item]:
        found: list[Item] = []
        for place, coded in enumerate(cells):
            if type(coded) is dict:
                number = coded.get("value")
                if type(number) is int and 0 <= number < count:
                    found.append(values[number])
                    continue
            elif type(coded) is str or coded is None:
                found.append(coded)
                continue
            try:
                found.append(item_from_json(coded, values, operands=operands))
            except Damaged as error:
                raise Damaged(f"{where(place)} {error}") from None
        return found

    return read


# Records ⇄ rows ----------------------------------------------------------------------------------


def _stats_row(stats: Stats | None) -> list[Any] | None:
    if stats is None:
        return None
    row: tuple[Any, ...] = _cells_of_stats(stats)
    try:
        plain = all(map(isfinite, row))
    except (TypeError, OverflowError):
        plain = False
    # the mean of a complex tensor is complex, the std of numbers near the end of float64 infinite
    return list(row if plain else map(item_to_json, row))


def value_row(value: Value) -> list[Any]:
    """Return a value as a list in the order of ``VALUE_COLUMNS``."""
    return _row_of_cells(_cells_of_value(value))


class ValueRowCache:
    """The JSON of values, made once for the journal and used again in ``trace.json``."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[tuple[Any, ...], str]] = {}

    def text(self, value: Value) -> str:
        """Return the row of a value as JSON; encode it again only if the value has changed."""
        cells = _cells_of_value(value)
        row = self._rows.get(value.number)
        if row is None or row[0] != cells:
            row = self._rows[value.number] = cells, dumps(_row_of_cells(cells))
        return row[1]


def _row_of_cells(cells: tuple[Any, ...]) -> list[Any]:
    row = list(cells)
    for position, cell in enumerate(cells):
        if type(cell) is Stats:
            row[position] = _stats_row(cell)
        elif type(cell) is Sharding:
            row[position] = list(_cells_of_sharding(cell))
    return row


def inputs_to_json(inputs: Inputs | None) -> Any:
    """Return ``[positional, keyword]`` arguments."""
    if inputs is None:
        return None
    kwargs = {name: item_to_json(item) for name, item in inputs.kwargs.items()}
    return [[item_to_json(item) for item in inputs.args], kwargs]


def outputs_to_json(outputs: Outputs | None) -> Any:
    """Return ``[item]``, so that "returned None" and "returned nothing" differ."""
    return None if outputs is None else [item_to_json(outputs.item)]


def failure_to_json(error: Failure | None) -> Any:
    """Return an exception as a list of its fields."""
    return None if error is None else [error.type, error.message, error.here, error.traceback, error.source]


_CODERS: dict[type, Callable[[Any], Any]] = {
    Inputs: inputs_to_json,
    Outputs: outputs_to_json,
    Failure: failure_to_json,
    tuple: list,
}


def call_row(call: Call) -> list[Any]:
    """Return a call as a list in the order of ``CALL_COLUMNS``."""
    row = list(_cells_of_call(call))
    for position, cell in enumerate(row):
        coder = _CODERS.get(type(cell))
        if coder is not None:
            row[position] = coder(cell)
    return row


def parameter_row(parameter: Parameter) -> list[Any]:
    """Return a parameter as a list in the order of ``PARAMETER_COLUMNS``."""
    return _row_of_cells(_cells_of_parameter(parameter))


# Rows → records ----------------------------------------------------------------------------------
# The type hints of the records are the schema. Below stand only the fields that are written in a form of their own, and
# what must hold between fields.


def _stat_numbers(*, complex_too: bool) -> Reader:
    """Return the reader of a statistic: a number, ``null``, or the object of one that JSON has no number for."""

    def read(cells: Sequence[Any], where: Where) -> Sequence[Any]:
        kinds = set(map(type, cells))
        if kinds <= _USUAL and (int not in kinds or not _has_large(cells)):
            return cells
        found: list[Any] = []
        for place, cell in enumerate(cells):
            try:
                if complex_too and type(cell) is dict and "complex" in cell:
                    cell = _leaf_from_json(cell, ())
                elif type(cell) is dict or (type(cell) is int and abs(cell) >= LARGEST):
                    cell = _float_from_json(cell)
                elif type(cell) not in _USUAL:
                    raise Damaged(f"is {shown(cell)}, not a number")
            except Damaged as error:
                raise Damaged(f"{where(place)} {error}") from None
            found.append(cell)
        return found

    return read


_USUAL = {float, int, type(None)}


def _has_large(cells: Sequence[Any]) -> bool:
    return any(type(cell) is int and not -LARGEST < cell < LARGEST for cell in cells)


_count = integers(0)
_statistic, _mean = _stat_numbers(complex_too=False), _stat_numbers(complex_too=True)
_STATS_COLUMNS = columns_of(
    Stats,
    {},
    {
        **dict.fromkeys(("count", "nan", "posinf", "neginf", "zeros"), _count),
        **dict.fromkeys(("std", "min", "max", "absmax"), _statistic),
        "mean": _mean,
    },
)
_stats_rows = rows(_quick_stats, _STATS_COLUMNS, defaults_of(Stats))


def _stats(cells: Sequence[Any], where: Where) -> Sequence[Stats]:
    found = _stats_rows(cells, where)
    for place, stats in enumerate(found):
        if stats.nan + stats.posinf + stats.neginf + (stats.mean is not None) > stats.count:
            raise Damaged(f"{where(place)} counts more elements than there are")
    return found


_sizes = tuples(integers(-1, 1 << 63))


def _shapes(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    found = _sizes(cells, where)
    for place, shape in enumerate(found):
        if not -(1 << 63) < prod(shape) < 1 << 63 or len(shape) > MOST_DIMS:
            raise damage(where(place), cells[place], "the shape of a tensor")
    return found


def _places(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    texts(cells, where)
    for place, saved in enumerate(cells):
        if not _TENSOR_REFERENCE.fullmatch(saved):  # a file in the same folder only
            raise damage(where(place), saved, "where a value can lie")
    return cells


_NAME = re.compile(r"[\w.:-]{1,100}")


def _names(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    texts(cells, where)
    for name in set(cells):
        if not _NAME.fullmatch(name):
            raise damage(where(cells.index(name)), name, "a name of torch")
    return cells


_SPECIAL: dict[Any, Reader] = {Stats: _stats}
_OF_VALUE = {"shape": _shapes, "saved": optional(_places), "number": _count}
_OF_VALUE |= dict.fromkeys(("dtype", "device", "layout"), _names)
VALUE_READERS = columns_of(Value, _SPECIAL, _OF_VALUE)
_PARAMETER_READERS = columns_of(Parameter, _SPECIAL, {"shape": _shapes, "dtype": _names, "device": _names})


_ITEM: Any = get_type_hints(Outputs)["item"]
_OPERAND: Any = get_args(get_type_hints(Op)["args"])[0]


def readers_with(values: Sequence[Value]) -> dict[Any, Reader]:
    """Return the readers of the types that refer to values, for :func:`fxdebug.files.schema.reader_of`."""
    item, operand = items_reader(values), items_reader(values, operands=True)
    return {
        _ITEM: item,
        _OPERAND: operand,
        Value: _numbers_of(values),
        Inputs: rows(_quick_inputs, {"args": tuples(item), "kwargs": mappings(item)}),
        Outputs: rows(_quick_outputs, {"item": item}),
    }


def _numbers_of(values: Sequence[Value]) -> Reader:
    number = integers(0, len(values))
    return lambda cells, where: [values[i] for i in number(cells, where)]


def values_from_columns(columns: Mapping[str, Sequence[Any]]) -> tuple[Value, ...]:
    """Return the values of a table. Raises :class:`Damaged` if they are not numbered in order."""
    _require_order("values", "number", columns["number"])
    return tuple(map(_quick_value, *columns.values()))


def values_of_table(content: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return the values in the JSON of a trace."""
    return values_from_columns(table(content, "values", VALUE_READERS, defaults_of(Value)))


def parameters_of_table(content: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters in the JSON of a trace."""
    columns = table(content, "parameters", _PARAMETER_READERS, defaults_of(Parameter))
    for place, names in enumerate(columns["names"]):
        if not names:
            raise Damaged(f"parameters[{place}].names is empty")
    return tuple(map(Parameter, *columns.values()))


def calls_of_table(content: Mapping[str, Any], values: Sequence[Value]) -> tuple[Call, ...]:
    """Return the calls in the JSON of a trace."""
    readers = columns_of(Call, readers_with(values))
    return calls_from_columns(table(content, "calls", readers, defaults_of(Call)))


def calls_from_columns(columns: Mapping[str, Sequence[Any]]) -> tuple[Call, ...]:
    """Return the calls of a table.

    Raises :class:`Damaged` if they are no tree in the order in which they began, or two have the same id.
    """
    _require_order("calls", "index", columns["index"])
    depths, parents = columns["depth"], columns["parent_index"]
    if not depths:
        raise Damaged("calls is empty")
    for index, (parent, depth) in enumerate(zip(parents, depths)):
        if parent is None:
            if index:
                raise Damaged(f"calls[{index}] has no parent, and is not the first call")
            if depth:
                raise Damaged(f"calls[{index}].depth is {shown(depth)}, and it has no parent")
        elif not 0 <= parent < index:
            raise Damaged(f"calls[{index}].parent_index is {parent}, which is no earlier call")
        elif depth != depths[parent] + 1:
            raise Damaged(f"calls[{index}].depth is {shown(depth)}, its parent's is {depths[parent]}")
    for index, inside in enumerate(columns["invoked_in"]):
        if inside is not None and not 0 <= inside < len(depths):
            raise Damaged(f"calls[{index}].invoked_in is {inside}, which is no call")
    ids = set(zip(columns["path"], columns["number"]))
    if len(ids) < len(depths):
        raise Damaged("two calls have the same path and number")
    return tuple(map(_quick_call, *columns.values()))


def _require_order(name: str, column: str, numbers: Sequence[int]) -> None:
    for place, number in enumerate(numbers):
        if number != place:
            raise Damaged(f"{name}[{place}].{column} is {shown(number)}")
