"""The file ``measures.json`` beside ``trace.json``: the measures that analyses took of the run, with their numbers.

``docs/trace-format.md`` describes it. Reading needs neither torch nor the analyses: each measure is stored with its
unit and its meaning.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.measures import SUBJECTS, Measure, Taken
from fxdebug.data.trace import AnyTrace, TraceData, replaced
from fxdebug.errors import LoadError
from fxdebug.files.read_file import require_inside
from fxdebug.files.schema import (
    Damaged,
    Reader,
    booleans,
    columns_of,
    integers,
    mappings,
    one_of,
    reader_of,
    record,
    rows,
    shown,
    texts,
    tuples,
)
from fxdebug.files.system_errors import system_errors_told
from fxdebug.printable import printable
from fxdebug.store.deep_json import dumps
from fxdebug.store.versioned_json import read_versioned

FORMAT = "fxdebug-measures"
VERSION = 1
FILE = "measures.json"
_OLDER = "take the measures again, or load the run with the fxdebug that wrote them"


def path_beside(trace_file: Path) -> Path:
    """Return the path of the measures of the run in a file: ``measures.1.json`` for ``trace.1.json``.

    >>> path_beside(Path("runs/trace.json")).name
    'measures.json'
    """
    return trace_file.with_name(FILE.partition(".")[0] + "." + trace_file.name.partition(".")[2])


def text_of(trace: TraceData) -> str:
    """Return the content of the file: valid JSON, one measure a line."""
    head = {"format": FORMAT, "version": VERSION, **_run(trace)}
    lines = [f"{dumps(key)}: {dumps(entry)},\n" for key, entry in head.items()]
    taken = [dumps([*_row(one.measure), dict(one.numbers), one.by]) for one in trace.taken.values()]
    return "{\n" + "".join(lines) + '"measures": [\n' + ",\n".join(taken) + "\n]\n}\n"


def _run(trace: TraceData) -> dict[str, Any]:
    """Return the facts by which a run is known again."""
    return {"model": trace.model, "started": trace.started, "calls": len(trace.calls)}


def _row(measure: Measure) -> list[Any]:
    of = [subject for subject in SUBJECTS if subject in measure.of]
    return [measure.name, measure.unit, measure.about, of, measure.adds, measure.own]


# Reading -----------------------------------------------------------------------------------------


def with_saved_measures(trace: AnyTrace, path: Path) -> AnyTrace:
    """Return a trace with the measures in a file; the trace itself if there is no such file.

    Measures of another run in the file are left out, with a note. Raises ``LoadError`` for a damaged file.
    """
    if not path.is_symlink() and not path.exists():
        return trace
    require_inside(path, path.parent)
    with system_errors_told(path):
        run, taken = _content_of(path)
    if run != _run(trace):
        note = Note(f"{path.name} has measures of another run, of {run['model']}: they were not read")
        return replaced(trace, notes=(*trace.notes, note))
    return replaced(trace, taken={one.measure.name: one for one in taken})


def _content_of(path: Path) -> tuple[dict[str, Any], tuple[Taken, ...]]:
    """Return the run that a file is about, and the measures in it."""
    content = read_versioned(path, "a file of measures", FORMAT, VERSION, _OLDER)
    try:
        run = record(content, "", {"model": texts, "started": texts, "calls": integers(0)})
        taken: tuple[Taken, ...] = record(content, "", {"measures": tuples(_TAKEN)})["measures"]
        names = [one.measure.name for one in taken]
        if len(set(names)) < len(names):
            raise Damaged("measures has a name twice")
    except Damaged as error:
        raise LoadError(f"{path} is damaged: {error}") from None
    return run, taken


def _taken(*cells: Any) -> Taken:
    name, unit, about, of, adds, own, numbers, by = cells
    if not _NAME.fullmatch(name):
        raise Damaged(f"{shown(name)} in measures is no name: letters, digits, underscores, and dots between them")
    return Taken(Measure(name, unit, printable(about), frozenset(of), adds, own), numbers, printable(by))


_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)


_MEASURE: dict[str, Reader] = columns_of(
    Measure, {}, {"of": tuples(one_of(SUBJECTS)), "adds": booleans, "own": booleans}
)
_TAKEN: Reader = rows(_taken, {**_MEASURE, "numbers": mappings(reader_of(float, {})), "by": texts})
