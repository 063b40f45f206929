"""The file ``trace.json``, written and read, with its format version: a whole trace without the data of tensors.

The file is one JSON object. ``values``, ``calls`` and ``parameters`` are tables: ``columns`` names the fields,
``rows`` holds one list per record, one record a line. Reading needs neither torch nor the model and runs no code:
unknown or damaged content is a :class:`~fxdebug.errors.LoadError`. ``docs/trace-format.md`` describes every field.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TextIO, get_type_hints

from fxdebug.data.calls import Call, Note, Parameter
from fxdebug.data.graphs import CallGraph
from fxdebug.data.trace import ModuleClass, TraceData
from fxdebug.data.values import VALUES, Stats, Value
from fxdebug.errors import LoadError
from fxdebug.files.schema import (
    Damaged,
    Reader,
    Where,
    booleans,
    columns_of,
    integers,
    mappings,
    one_of,
    plain,
    reader_of,
    record,
    rows,
    texts,
    tuples,
)
from fxdebug.files.system_errors import system_errors_told
from fxdebug.store.deep_json import dumps
from fxdebug.store.tensors.saved_data import SavedData
from fxdebug.store.trace_json import graphs, samples
from fxdebug.store.trace_json.records import (
    CALL_COLUMNS,
    PARAMETER_COLUMNS,
    VALUE_COLUMNS,
    ValueRowCache,
    call_row,
    calls_of_table,
    item_to_json,
    parameter_row,
    parameters_of_table,
    value_row,
    values_of_table,
)
from fxdebug.store.versioned_json import read_versioned

FORMAT = "fxdebug-trace"
VERSION = 1
FILE = "trace.json"
OLDER = "trace the model again or load it with the fxdebug that wrote it"

_COUNTS = [f.name for f in fields(Stats)].index("nan")  # the counts begin here
_TRACE_FIELDS = ("model", "modules", "started", "duration", "versions", "settings")


# Writing -----------------------------------------------------------------------------------------


def renamed_shard(saved: str | None, shards: Mapping[str, str]) -> str | None:
    """Return a value's place in its shard after the shard was renamed.

    >>> renamed_shard("tensors-0001.safetensors#v3", {"tensors-0001.safetensors": "tensors-0002.safetensors"})
    'tensors-0002.safetensors#v3'
    """
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
    rows: ValueRowCache | None = None,
) -> None:
    """Write ``trace.json``: valid JSON, one record a line.

    ``shards``: old and new names of renamed tensor files. ``lean`` leaves out what a reader fills in by itself: columns
    with the default in every row, zeros at the end of statistics. ``rows``: the JSON of values that was made before.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    head |= {name: getattr(trace, name) for name in _TRACE_FIELDS}
    head["notes"] = [[note.what, note.where, note.call] for note in trace.notes]
    if trace.classes:
        head["classes"] = [[each.names, each.paths] for each in trace.classes]
    file.write("{\n")
    for key, content in head.items():
        file.write(f"{dumps(key)}: {dumps(content)},\n")
    values = trace.values
    if shards:
        values = tuple(replace(value, saved=renamed_shard(value.saved, shards)) for value in values)
    _write_table(file, "parameters", Parameter, PARAMETER_COLUMNS, map(parameter_row, trace.parameters), lean)
    file.write(",\n")
    if lean or rows is None:
        _write_table(file, "values", Value, VALUE_COLUMNS, map(value_row, values), lean)
    else:
        _write_rows(file, "values", VALUE_COLUMNS, map(rows.text, values))
    file.write(",\n")
    _write_table(file, "calls", Call, CALL_COLUMNS, map(call_row, trace.calls), lean)
    if trace.call_graphs is not None:
        bodies = (graphs.call_graph_row(body, item_to_json) for body in trace.call_graphs.bodies)
        file.write(",\n")
        _write_table(file, "bodies", CallGraph, graphs.CALL_GRAPH_COLUMNS, bodies, lean)
        coded = (graphs.graph_to_json(graph, item_to_json) for graph in trace.graphs)
        _write_list(file, "graphs", coded)
    lines = {} if lean else trace.named_lines()
    if lines:
        file.write(f',\n"source_lines": {dumps(lines)}')
    sample_rows = getattr(trace.data, "samples", None)
    if sample_rows:
        dtypes = {value.number: value.dtype for value in values}
        _write_list(file, "samples", ([n, *samples.to_json(row, dtypes[n])] for n, row in sorted(sample_rows.items())))
    file.write("\n}\n")


def _write_table(
    file: TextIO, name: str, kind: type, columns: tuple[str, ...], rows: Iterable[list[Any]], lean: bool
) -> None:
    if lean:
        rows = [_lean_row(columns, row) for row in rows]
        default: dict[str, Any] = {f.name: [] if f.default == () else f.default for f in fields(kind)}
        used = [i for i, column in enumerate(columns) if any(row[i] != default[column] for row in rows)]
        columns = tuple([columns[i] for i in used])
        rows = [[row[i] for i in used] for row in rows]
    _write_rows(file, name, columns, map(dumps, rows))


def _write_rows(file: TextIO, name: str, columns: tuple[str, ...], texts: Iterable[str]) -> None:
    file.write(f'"{name}": {{"columns": {dumps(columns)}, "rows": [')
    separator = "\n"
    for text in texts:
        file.write(separator + text)
        separator = ",\n"
    file.write("\n]}")


def _lean_row(columns: tuple[str, ...], row: list[Any]) -> list[Any]:
    """Return a row without counts that are zero at the end of statistics, and without unknown source lines."""
    lean = []
    for column, cell in zip(columns, row):
        if column == "stats" and cell is not None:
            while len(cell) > _COUNTS and cell[-1] == 0:
                cell = cell[:-1]
        elif column == "sources" and not any(cell):
            cell = []
        lean.append(cell)
    return lean


def _write_list(file: TextIO, name: str, rows: Iterable[Any]) -> None:
    file.write(f',\n"{name}": [')
    separator = "\n"
    for row in rows:
        file.write(separator + dumps(row))
        separator = ",\n"
    file.write("\n]")


# Reading -----------------------------------------------------------------------------------------


def read(path: Path) -> TraceData:
    """Return the trace in a file. Raises :class:`LoadError` if it is no trace, damaged, or of a newer version."""
    with system_errors_told(path), _gc_paused():
        return _read(path)


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which takes half of the time: reading makes millions of records and no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(path: Path) -> TraceData:
    content = read_versioned(path, "a trace", FORMAT, VERSION, OLDER)
    try:
        values = values_of_table(content)
        calls = calls_of_table(content, values)
        head = record(content, "", _HEAD, {"classes": ()})
        if any(note.call is not None and not 0 <= note.call < len(calls) for note in head["notes"]):
            raise Damaged("a note is about a call that there is not")
        return TraceData(
            **head,
            parameters=parameters_of_table(content),
            values=values,
            calls=calls,
            graph_source=graphs.run_graphs_of_tables(content, values, len(calls))
            if {"graphs", "bodies"} & content.keys()
            else None,
            source_lines=_source_lines(content),
            folder=path.parent,
            data=_saved_data(content, values, path.parent),
        )
    except Damaged as error:
        raise LoadError(f"{path} is damaged: {error}") from None


def _source_lines(content: dict[str, Any]) -> dict[str, str]:
    """Return the stored text of source lines. They are never read from the files that a trace names."""
    lines: dict[str, str] = record(content, "", {"source_lines": mappings(texts)}, {"source_lines": {}})["source_lines"]
    return lines


def _settings(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    """Read the settings: those that fxdebug uses by their types, others as they are."""
    for place, settings in enumerate(mappings(plain)(cells, where)):
        known = {name: reader for name, reader in _SETTINGS.items() if name in settings}
        record({where(place): settings}, where(place), known)
    return cells


_digits = integers(0, 1_000)
_SETTINGS: dict[str, Reader] = {
    **dict.fromkeys(("method", "default_dtype", "read", "tf32"), texts),
    **dict.fromkeys(("precision", "printed"), _digits),
    **dict.fromkeys(("rank", "world_size"), integers(0, 1 << 31)),
    **dict.fromkeys(("golden", "grad"), booleans),
    "values": one_of(VALUES),
}
_HINTS = get_type_hints(TraceData)
_HEAD = {name: _settings if name == "settings" else reader_of(_HINTS[name], {}) for name in _TRACE_FIELDS}
_HEAD |= {name: tuples(rows(kind, columns_of(kind, {}))) for name, kind in (("notes", Note), ("classes", ModuleClass))}


def _saved_data(content: dict[str, Any], values: tuple[Value, ...], folder: Path) -> SavedData:
    if "samples" not in content:
        return SavedData(folder.absolute())
    (found,) = tuples(tuples(samples.elements))([content["samples"]], lambda _: "samples")
    taken: dict[int, list[float]] = {}
    for place, row in enumerate(found):
        if not row or type(row[0]) is not int or not 0 <= row[0] < len(values) or row[0] in taken:
            raise Damaged(f"samples[{place}] does not begin with the number of a value of its own")
        taken[row[0]] = samples.from_json(row[1:], values[row[0]].dtype)
    return samples.SavedSamples(folder.absolute(), taken)
