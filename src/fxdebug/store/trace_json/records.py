"""Items (arguments, results) and records (values, calls, parameters) as JSON, both ways.

A record is a list of its fields in the order of their columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, cast

from fxdebug.data.calls import Call, Failure, Parameter
from fxdebug.data.values import (
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
from fxdebug.store.deep_json import dumps

VALUE_COLUMNS = tuple(f.name for f in fields(Value))
CALL_COLUMNS = tuple(f.name for f in fields(Call) if f.init)
PARAMETER_COLUMNS = tuple(f.name for f in fields(Parameter))

_quick_value, _quick_stats, _quick_call = fast_constructor(Value), fast_constructor(Stats), fast_constructor(Call)
_cells_of_value, _cells_of_call, _cells_of_parameter = (
    attrgetter(*VALUE_COLUMNS),
    attrgetter(*CALL_COLUMNS),
    attrgetter(*PARAMETER_COLUMNS),
)
_cells_of_stats, _cells_of_sharding = (attrgetter(*[f.name for f in fields(kind)]) for kind in (Stats, Sharding))
_TENSOR_REFERENCE = re.compile(r"tensors-\d+\.safetensors#(v\d+|data)")  # a file in the same folder only


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
        return item if math.isfinite(item) else {"float": repr(item)}
    if isinstance(item, Thing):
        return {"thing": item.type, "text": item.text, "number": item.number}
    if isinstance(item, complex):
        return {"complex": [_leaf_to_json(item.real), _leaf_to_json(item.imag)]}
    return {"bytes": item.hex()}


def item_from_json(coded: Any, values: Sequence[Value]) -> Item:
    """Return the item from the JSON of :func:`item_to_json`."""
    if _container_kind(coded) is None:
        return _leaf_from_json(coded, values)
    groups: list[dict[str, Any]] = [coded]
    for outer in groups:  # the list grows meanwhile: containers inside come after the one that holds them
        for inner in (*outer["items"], *(outer.get("keys") or ())):
            if _container_kind(inner) is not None:
                groups.append(inner)
    groups_by_id: dict[int, Group] = {}

    def item(inner: Any) -> Item:
        return groups_by_id[id(inner)] if id(inner) in groups_by_id else _leaf_from_json(inner, values)

    for group in reversed(groups):
        kind, keys = _container_kind(group), group.get("keys")
        assert kind is not None
        groups_by_id[id(group)] = Group(
            kind,
            group[kind],
            tuple([item(inner) for inner in group["items"]]),
            None if keys is None else tuple([item(key) for key in keys]),
            group.get("text"),
            group.get("number"),
        )
    return groups_by_id[id(coded)]


def _container_kind(coded: Any) -> str | None:
    """Return the kind of a container; ``None`` for anything else."""
    if not isinstance(coded, dict) or "value" in coded:
        return None
    return next((kind for kind in ("sequence", "mapping", "object") if kind in coded), None)


def _leaf_from_json(coded: Any, values: Sequence[Value]) -> Item:
    if not isinstance(coded, dict):
        return cast(Item, coded)
    if "value" in coded:
        return values[coded["value"]]
    if "thing" in coded:
        return Thing(coded["thing"], coded["text"], coded["number"])
    if "float" in coded:
        return canonical_nan(float(coded["float"]))
    if "complex" in coded:
        real, imag = (_leaf_from_json(part, values) for part in coded["complex"])
        return canonical_nan(complex(real, imag))  # type: ignore[arg-type]
    return bytes.fromhex(coded["bytes"])


# Records ⇄ rows ----------------------------------------------------------------------------------


def _stats_row(stats: Stats | None) -> list[Any] | None:
    if stats is None:
        return None
    row: tuple[Any, ...] = _cells_of_stats(stats)
    try:
        plain = all(map(math.isfinite, row))
    except (TypeError, OverflowError):
        plain = False
    # the mean of a complex tensor is complex, the std of numbers near the end of float64 infinite
    return list(row if plain else map(item_to_json, row))


def _stats_from_row(row: list[Any] | None) -> Stats | None:
    if row is None:
        return None
    return _quick_stats(*[item_from_json(n, ()) if type(n) is dict else n for n in row])  # type: ignore[arg-type]


def _sharding_from_row(row: list[Any] | None) -> Sharding | None:
    return None if row is None else Sharding(*(None if part is None else tuple(part) for part in row))  # type: ignore[arg-type]


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


def value_from_row(record: dict[str, Any]) -> Value:
    """Return the value from a row, given as a dict by column. Raises ``ValueError`` for a place outside the folder."""
    record["shape"] = tuple(record["shape"])
    saved = record.get("saved")
    if saved is not None and not _TENSOR_REFERENCE.fullmatch(saved):
        raise ValueError(f"{saved!r} is not where a value can lie")
    if record.get("stride") is not None:
        record["stride"] = tuple(record["stride"])
    record["stats"] = _stats_from_row(record.get("stats"))
    record["sharding"] = _sharding_from_row(record.get("sharding"))
    return _quick_value(**record)


def inputs_to_json(inputs: Inputs | None) -> Any:
    """Return ``[positional, keyword]`` arguments."""
    if inputs is None:
        return None
    kwargs = {name: item_to_json(item) for name, item in inputs.kwargs.items()}
    return [[item_to_json(item) for item in inputs.args], kwargs]


def inputs_from_json(coded: Any, values: tuple[Value, ...]) -> Inputs | None:
    """Return the inputs from the JSON of :func:`inputs_to_json`."""
    if coded is None:
        return None
    args, kwargs = coded
    return Inputs(
        tuple([item_from_json(item, values) for item in args]),
        {name: item_from_json(item, values) for name, item in kwargs.items()},
    )


def outputs_to_json(outputs: Outputs | None) -> Any:
    """Return ``[item]``, so that "returned None" and "returned nothing" differ."""
    return None if outputs is None else [item_to_json(outputs.item)]


def outputs_from_json(coded: Any, values: tuple[Value, ...]) -> Outputs | None:
    """Return the outputs from the JSON of :func:`outputs_to_json`."""
    return None if coded is None else Outputs(item_from_json(coded[0], values))


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


def call_from_row(record: dict[str, Any], values: tuple[Value, ...]) -> Call:
    """Return the call from a row, given as a dict by column."""
    inputs = inputs_from_json(record.get("inputs"), values)  # ``or`` would not do: inputs without a tensor are false
    record["inputs"] = Inputs() if inputs is None else inputs
    record["given"] = inputs_from_json(record.get("given"), values)
    record["outputs"] = outputs_from_json(record.get("outputs"), values)
    record["returned"] = outputs_from_json(record.get("returned"), values)
    record["error"] = None if record.get("error") is None else Failure(*record["error"])
    record["aliases"] = tuple(record.get("aliases", ()))
    return _quick_call(**record)


def parameter_row(parameter: Parameter) -> list[Any]:
    """Return a parameter as a list in the order of ``PARAMETER_COLUMNS``."""
    return _row_of_cells(_cells_of_parameter(parameter))


def parameter_from_row(record: dict[str, Any]) -> Parameter:
    """Return the parameter from a row, given as a dict by column."""
    record["names"], record["shape"] = tuple(record["names"]), tuple(record["shape"])
    record["before"], record["stats"] = _stats_from_row(record.get("before")), _stats_from_row(record.get("stats"))
    record["sharding"] = _sharding_from_row(record.get("sharding"))
    return Parameter(**record)
