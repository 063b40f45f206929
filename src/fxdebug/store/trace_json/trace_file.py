"""``trace.json``: everything of a :class:`~fxdebug.data.trace.TraceData` but the tensors' data, both ways.

The file is one JSON object. ``values``, ``calls`` and ``parameters`` are tables: ``columns`` names
the fields, ``rows`` holds one list per record, one record a line. Reading needs neither torch nor
the model and runs no code: unknown or damaged content is a :class:`~fxdebug.errors.LoadError`.
``docs/trace-format.md`` describes every field.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TextIO

from fxdebug.data.calls import Call, Note, Parameter
from fxdebug.data.graphs import CallGraph, RunGraphs
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats, Value
from fxdebug.errors import LoadError
from fxdebug.store.deep_json import dumps, loads
from fxdebug.store.tensors.saved_values import Saved
from fxdebug.store.trace_json import graphs, samples
from fxdebug.store.trace_json.records import (
    CALL,
    PARAMETER,
    VALUE,
    WrittenValues,
    call_from_row,
    call_row,
    item_from_json,
    item_to_json,
    parameter_from_row,
    parameter_row,
    value_from_row,
    value_row,
)

FORMAT = "fxdebug-trace"
VERSION = 1
FILE = "trace.json"
_GZIP = b"\x1f\x8b"

_COUNTS = [f.name for f in fields(Stats)].index("nan")  # where the counts begin
_PLAIN_TRACE = ("model", "modules", "started", "duration", "versions", "settings")


# The file ----------------------------------------------------------------------------------------


def moved(saved: str | None, shards: Mapping[str, str]) -> str | None:
    """Where a value lies after its shard was renamed."""
    if saved is None:
        return None
    name, _, key = saved.partition("#")
    return f"{shards.get(name, name)}#{key}"


def write(
    trace: TraceData,
    file: TextIO,
    shards: Mapping[str, str] | None = None,
    *,
    lean: bool = False,
    written: WrittenValues | None = None,
) -> None:
    """Write ``trace.json``: valid JSON, one record a line.

    ``shards``: new names of renamed tensor files. ``lean`` leaves out columns that say the same of every record, and
    what they would say without being written. ``written``: values whose JSON was made before.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    head |= {name: getattr(trace, name) for name in _PLAIN_TRACE}
    head["notes"] = [[note.what, note.where, note.call] for note in trace.notes]
    file.write("{\n")
    for key, content in head.items():
        file.write(f"{dumps(key)}: {dumps(content)},\n")
    values = trace.values
    if shards:
        values = tuple(replace(value, saved=moved(value.saved, shards)) for value in values)
    _write_table(file, "parameters", Parameter, PARAMETER, map(parameter_row, trace.parameters), lean)
    file.write(",\n")
    if lean or written is None:
        _write_table(file, "values", Value, VALUE, map(value_row, values), lean)
    else:
        _write_rows(file, "values", VALUE, map(written.text, values))
    file.write(",\n")
    _write_table(file, "calls", Call, CALL, map(call_row, trace.calls), lean)
    if trace.explanation is not None:
        rows = (graphs.body_row(body, item_to_json) for body in trace.explanation.bodies)
        file.write(",\n")
        _write_table(file, "bodies", CallGraph, graphs.BODY, rows, lean)
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
    _write_rows(file, name, columns, map(dumps, rows))


def _write_rows(file: TextIO, name: str, columns: tuple[str, ...], texts: Iterable[str]) -> None:
    file.write(f'"{name}": {{"columns": {dumps(columns)}, "rows": [')
    separator = "\n"
    for text in texts:
        file.write(separator + text)
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
        file.write(separator + dumps(row))
        separator = ",\n"
    file.write("\n]")


def read(path: Path) -> TraceData:
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


def _read(path: Path) -> TraceData:
    content = _parsed(path)
    try:
        values = tuple([value_from_row(record) for record in _table(content, "values")])
        return TraceData(
            **{name: content[name] for name in _PLAIN_TRACE},
            parameters=tuple([parameter_from_row(record) for record in _table(content, "parameters")]),
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
        return Saved(folder.absolute())
    rows = {row[0]: samples.from_json(row[1:], values[row[0]].dtype) for row in content["samples"]}
    return samples.SavedSamples(folder.absolute(), rows)


def _explanation(content: dict[str, Any], values: tuple[Value, ...]) -> RunGraphs | None:
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
        content = loads(text)
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
