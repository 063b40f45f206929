"""``trace.json``: everything of a :class:`~fxdebug.trace.Trace` but the tensors' data, both ways.

The file is one JSON object. ``values``, ``calls`` and ``parameters`` are tables: ``columns`` names
the fields, ``rows`` holds one list per record, one record a line. Reading needs neither torch nor
the model and runs no code: unknown or damaged content is a :class:`~fxdebug.errors.LoadError`.
``docs/trace-format.md`` describes every field.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TextIO, cast

from fxdebug.errors import LoadError
from fxdebug.ops import Body, Explanation
from fxdebug.store import graphs, samples
from fxdebug.store.json_tree import deeply
from fxdebug.store.saved import Saved
from fxdebug.trace import Call, Failure, Note, Parameter, Trace
from fxdebug.values import Group, Inputs, Item, Outputs, Sharding, Stats, Thing, Value, quick, settled

FORMAT = "fxdebug-trace"
VERSION = 1
FILE = "trace.json"
_GZIP = b"\x1f\x8b"
_SAVED = re.compile(r"tensors-\d+\.safetensors#(v\d+|data)")  # a file beside this one, and nowhere else

_quick_value, _quick_stats, _quick_call = quick(Value), quick(Stats), quick(Call)
_VALUE = tuple(f.name for f in fields(Value))
_CALL = tuple(f.name for f in fields(Call) if f.init)
_PARAMETER = tuple(f.name for f in fields(Parameter))
_COUNTS = [f.name for f in fields(Stats)].index("nan")  # where the counts begin
_PLAIN_TRACE = ("model", "modules", "started", "duration", "versions", "settings")


# Items ⇄ JSON ------------------------------------------------------------------------------------
# None, bool, str, int and finite floats are themselves; everything else is an object with one telling key.


def item_to_json(item: Item) -> Any:
    """The JSON of any item; a value is a reference to its number."""
    if item is None or isinstance(item, (bool, int, str)):
        return item
    if isinstance(item, float):
        return item if math.isfinite(item) else {"float": repr(item)}
    if isinstance(item, Value):
        return {"value": item.number}
    if isinstance(item, Thing):
        return {"thing": item.type, "text": item.text, "number": item.number}
    if isinstance(item, Group):
        coded: dict[str, Any] = {item.kind: item.type, "items": [item_to_json(inner) for inner in item.items]}
        if item.keys is not None:
            coded["keys"] = [item_to_json(key) for key in item.keys]
        if item.text is not None:
            coded["text"] = item.text
        if item.number is not None:
            coded["number"] = item.number
        return coded
    if isinstance(item, complex):
        return {"complex": [item_to_json(item.real), item_to_json(item.imag)]}
    return {"bytes": item.hex()}


def item_from_json(coded: Any, values: list[Value] | tuple[Value, ...]) -> Item:
    """The item again."""
    if not isinstance(coded, dict):
        return cast(Item, coded)
    if "value" in coded:
        return values[coded["value"]]
    for kind in ("sequence", "mapping", "object"):
        if kind in coded:
            keys = coded.get("keys")
            return Group(
                kind,
                coded[kind],
                tuple([item_from_json(inner, values) for inner in coded["items"]]),
                None if keys is None else tuple([item_from_json(key, values) for key in keys]),
                coded.get("text"),
                coded.get("number"),
            )
    if "thing" in coded:
        return Thing(coded["thing"], coded["text"], coded["number"])
    if "float" in coded:
        return settled(float(coded["float"]))
    if "complex" in coded:
        real, imag = (item_from_json(part, values) for part in coded["complex"])
        return settled(complex(real, imag))  # type: ignore[arg-type]
    return bytes.fromhex(coded["bytes"])


# Records ⇄ rows ----------------------------------------------------------------------------------


def _stats_row(stats: Stats | None) -> list[Any] | None:
    if stats is None:
        return None
    # the mean of a complex tensor is complex, the std of numbers near the end of float64 infinite
    return [item_to_json(getattr(stats, f.name)) for f in fields(Stats)]


def _stats(row: list[Any] | None) -> Stats | None:
    if row is None:
        return None
    return _quick_stats(*[item_from_json(n, ()) if type(n) is dict else n for n in row])  # type: ignore[arg-type]


def _sharding(row: list[Any] | None) -> Sharding | None:
    return None if row is None else Sharding(*(None if part is None else tuple(part) for part in row))  # type: ignore[arg-type]


def value_row(value: Value) -> list[Any]:
    """A value as a list in the order of its columns."""
    row: list[Any] = []
    for name in _VALUE:
        field = getattr(value, name)
        if name == "stats":
            field = _stats_row(field)
        elif name == "sharding" and field is not None:
            field = [getattr(field, f.name) for f in fields(Sharding)]
        row.append(field)
    return row


def value_from_row(record: dict[str, Any]) -> Value:
    """The value again."""
    record["shape"] = tuple(record["shape"])
    saved = record.get("saved")
    if saved is not None and not _SAVED.fullmatch(saved):
        raise ValueError(f"{saved!r} is not where a value can lie")
    if record.get("stride") is not None:
        record["stride"] = tuple(record["stride"])
    record["stats"] = _stats(record.get("stats"))
    record["sharding"] = _sharding(record.get("sharding"))
    return _quick_value(**record)


def inputs_to_json(inputs: Inputs | None) -> Any:
    """``[positional, keyword]`` arguments."""
    if inputs is None:
        return None
    kwargs = {name: item_to_json(item) for name, item in inputs.kwargs.items()}
    return [[item_to_json(item) for item in inputs.args], kwargs]


def inputs_from_json(coded: Any, values: tuple[Value, ...]) -> Inputs | None:
    """The inputs again."""
    if coded is None:
        return None
    args, kwargs = coded
    return Inputs(
        tuple([item_from_json(item, values) for item in args]),
        {name: item_from_json(item, values) for name, item in kwargs.items()},
    )


def outputs_to_json(outputs: Outputs | None) -> Any:
    """``[item]``, so that "returned None" and "returned nothing" differ."""
    return None if outputs is None else [item_to_json(outputs.item)]


def _outputs_from_json(coded: Any, values: tuple[Value, ...]) -> Outputs | None:
    return None if coded is None else Outputs(item_from_json(coded[0], values))


def failure_to_json(error: Failure | None) -> Any:
    """An exception as a list."""
    return None if error is None else [error.type, error.message, error.here, error.traceback]


def call_row(call: Call) -> list[Any]:
    """A call as a list in the order of its columns."""
    coders: dict[str, Callable[[Any], Any]] = {
        "inputs": inputs_to_json,
        "given": inputs_to_json,
        "outputs": outputs_to_json,
        "returned": outputs_to_json,
        "error": failure_to_json,
    }
    row = [coders[name](getattr(call, name)) if name in coders else getattr(call, name) for name in _CALL]
    return [list(cell) if type(cell) is tuple else cell for cell in row]


def call_from_row(record: dict[str, Any], values: tuple[Value, ...]) -> Call:
    """The call again."""
    inputs = inputs_from_json(record.get("inputs"), values)  # without a tensor in them they count as empty
    record["inputs"] = Inputs() if inputs is None else inputs
    record["given"] = inputs_from_json(record.get("given"), values)
    record["outputs"] = _outputs_from_json(record.get("outputs"), values)
    record["returned"] = _outputs_from_json(record.get("returned"), values)
    record["error"] = None if record.get("error") is None else Failure(*record["error"])
    record["aliases"] = tuple(record.get("aliases", ()))
    return _quick_call(**record)


def _parameter_row(parameter: Parameter) -> list[Any]:
    row: list[Any] = []
    for name in _PARAMETER:
        field = getattr(parameter, name)
        if name in ("before", "stats"):
            field = _stats_row(field)
        elif name == "sharding" and field is not None:
            field = [getattr(field, f.name) for f in fields(Sharding)]
        row.append(field)
    return row


def _parameter(record: dict[str, Any]) -> Parameter:
    record["names"], record["shape"] = tuple(record["names"]), tuple(record["shape"])
    record["before"], record["stats"] = _stats(record.get("before")), _stats(record.get("stats"))
    record["sharding"] = _sharding(record.get("sharding"))
    return Parameter(**record)


# The file ----------------------------------------------------------------------------------------


def moved(saved: str | None, shards: Mapping[str, str]) -> str | None:
    """Where a value lies after its shard was renamed."""
    if saved is None:
        return None
    name, _, key = saved.partition("#")
    return f"{shards.get(name, name)}#{key}"


def write(trace: Trace, file: TextIO, shards: Mapping[str, str] | None = None, *, lean: bool = False) -> None:
    """Write ``trace.json``: valid JSON, one record a line.

    ``shards``: new names of renamed tensor files. ``lean`` leaves out columns that say the same of every record, and
    what they would say without being written.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    head |= {name: getattr(trace, name) for name in _PLAIN_TRACE}
    head["notes"] = [[note.what, note.where, note.call] for note in trace.notes]
    file.write("{\n")
    for key, content in head.items():
        file.write(f"{_dumps(key)}: {_dumps(content)},\n")
    values = trace.values
    if shards:
        values = tuple(replace(value, saved=moved(value.saved, shards)) for value in values)
    _write_table(file, "parameters", Parameter, _PARAMETER, map(_parameter_row, trace.parameters), lean)
    file.write(",\n")
    _write_table(file, "values", Value, _VALUE, map(value_row, values), lean)
    file.write(",\n")
    _write_table(file, "calls", Call, _CALL, map(call_row, trace.calls), lean)
    if trace.explanation is not None:
        rows = (graphs.body_row(body, item_to_json) for body in trace.explanation.bodies)
        file.write(",\n")
        _write_table(file, "bodies", Body, graphs.BODY, rows, lean)
        coded = (graphs.graph_to_json(graph, item_to_json) for graph in trace.graphs)
        _write_list(file, "graphs", coded)
    taken = getattr(trace.data, "samples", None)
    if taken:
        dtypes = {value.number: value.dtype for value in values}
        _write_list(file, "samples", ([n, *samples.to_json(row, dtypes[n])] for n, row in sorted(taken.items())))
    file.write("\n}\n")


def _write_table(
    file: TextIO, name: str, kind: type, columns: tuple[str, ...], rows: Iterable[list[Any]], lean: bool
) -> None:
    if lean:
        rows = [_shortened(columns, row) for row in rows]
        default: dict[str, Any] = {f.name: [] if f.default == () else f.default for f in fields(kind)}
        kept = [i for i, column in enumerate(columns) if any(row[i] != default[column] for row in rows)]
        columns = tuple([columns[i] for i in kept])
        rows = [[row[i] for i in kept] for row in rows]
    file.write(f'"{name}": {{"columns": {_dumps(columns)}, "rows": [')
    separator = "\n"
    for row in rows:
        file.write(separator + _dumps(row))
        separator = ",\n"
    file.write("\n]}")


def _shortened(columns: tuple[str, ...], row: list[Any]) -> list[Any]:
    """A row without the ends that are read the same: counts in statistics that are zero, lines that are not known."""
    found = []
    for column, cell in zip(columns, row):
        if column == "stats" and cell is not None:
            while len(cell) > _COUNTS and cell[-1] == 0:
                cell = cell[:-1]
        elif column == "sources" and not any(cell):
            cell = []
        found.append(cell)
    return found


def _write_list(file: TextIO, name: str, rows: Iterable[Any]) -> None:
    file.write(f',\n"{name}": [')
    separator = "\n"
    for row in rows:
        file.write(separator + _dumps(row))
        separator = ",\n"
    file.write("\n]")


def _dumps(content: Any) -> str:
    text: str = deeply(lambda: json.dumps(content, allow_nan=False, separators=(",", ":")))
    return text


def read(path: Path) -> Trace:
    """The trace in ``path``. Raises :class:`LoadError` for what is not one, damaged, or newer than this version."""
    with _without_collection():
        return _read(path)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Millions of records are made and none is garbage: to look for some again and again takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(path: Path) -> Trace:
    content = _parsed(path)
    try:
        values = tuple([value_from_row(record) for record in _table(content, "values")])
        return Trace(
            **{name: content[name] for name in _PLAIN_TRACE},
            parameters=tuple([_parameter(record) for record in _table(content, "parameters")]),
            values=values,
            calls=tuple([call_from_row(record, values) for record in _table(content, "calls")]),
            notes=tuple([Note(*row) for row in content["notes"]]),
            explain=_explanation(content, values),
            folder=path.parent,
            data=_data(content, values, path.parent),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise LoadError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _data(content: dict[str, Any], values: tuple[Value, ...], folder: Path) -> Saved:
    if "samples" not in content:
        return Saved(folder)
    rows = {row[0]: samples.from_json(row[1:], values[row[0]].dtype) for row in content["samples"]}
    return samples.SavedSamples(folder, rows)


def _explanation(content: dict[str, Any], values: tuple[Value, ...]) -> Explanation | None:
    if "graphs" not in content:
        return None
    return graphs.explanation_of(content["graphs"], list(_table(content, "bodies")), item_from_json, values)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise LoadError(f"{path} is not a trace: it is not text") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LoadError(f"{path} is cut short or damaged: {error}") from error
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        content = deeply(lambda: json.loads(text))
    except ValueError as error:
        if text.lstrip().startswith("{") and f'"{FORMAT}"' in text[:200]:
            raise LoadError(f"{path} is cut short or damaged: {error}") from error
        raise LoadError(f"{path} is not a trace: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise LoadError(f'{path} is not a trace of fxdebug: it has no "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise LoadError(
            f"{path} has format version {content.get('version')}, this fxdebug reads version {VERSION}: "
            "upgrade with pip install -U fxdebug"
        )
    return content


def _table(content: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    columns = content[name]["columns"]
    for row in content[name]["rows"]:
        if len(row) != len(columns):
            raise ValueError(f"a row of {name} has {len(row)} fields instead of {len(columns)}")
        yield dict(zip(columns, row))
