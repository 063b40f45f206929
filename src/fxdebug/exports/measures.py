"""The list of measures as text, JSON and CSV: name, unit, what has it, meaning."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable

from fxdebug.analyses.measures import available, every_measure
from fxdebug.data.measures import SUBJECTS, Measure
from fxdebug.data.trace import TraceData
from fxdebug.exports.records import SCHEMAS, csv_text
from fxdebug.exports.text import names_by_origin
from fxdebug.printable import printable_json

LEAST = 30  # columns for a meaning beside its name
_HEADS = ("name", "unit", "of", "adds", "about", "from")


def measures_text(trace: TraceData | None, *, width: int | None = None) -> str:
    """Return every measure, or those of a run, one a line; meanings that are too long go on below."""
    width = shutil.get_terminal_size().columns if width is None else width
    rows = [(one.name, one.unit, _subjects(one), one.about) for one, _ in _measures(trace)]
    sizes = [max(len(row[i]) for row in rows) for i in range(3)]
    indent = sum(sizes) + 2 * len(sizes)
    is_beside = width - indent >= LEAST
    lines = []
    for name, unit, of, about in rows:
        first = f"{name:<{sizes[0]}}  {unit:<{sizes[1]}}  {of:<{sizes[2]}}  "
        if is_beside:
            lines += textwrap.wrap(about, width, initial_indent=first, subsequent_indent=" " * indent)
        else:  # a narrow terminal has the meaning below
            lines += [first.rstrip(), *textwrap.wrap(about, width, initial_indent="    ", subsequent_indent="    ")]
    lines += ["", "of: c call, o operation, v value, p parameter"]
    for by, names in ({} if trace is None else names_by_origin(trace)).items():
        lines += textwrap.wrap(f"measured by {by}: {', '.join(names)}", width)
    return "\n".join(lines)


def _subjects(measure: Measure) -> str:
    """Return the first letters of the subjects that have a measure, in their columns."""
    return "".join(subject[0] if subject in measure.of else "·" for subject in SUBJECTS)


def _measures(trace: TraceData | None) -> Iterable[tuple[Measure, str]]:
    known = every_measure() if trace is None else available(trace)
    taken = {} if trace is None else trace.taken
    return [(measure, taken[name].by if name in taken else "") for name, measure in known.items()]


def measures_json(trace: TraceData | None) -> str:
    """Return every measure, or those of a run, as JSON."""
    rows = [dict(zip(_HEADS, _row(measure, by))) for measure, by in _measures(trace)]
    model = None if trace is None else trace.model
    data = {"schema": SCHEMAS["measures"], "model": model, "measures": rows}
    return printable_json(json.dumps(data, indent=2, ensure_ascii=False))


def measures_csv(trace: TraceData | None) -> str:
    """Return every measure, or those of a run, as CSV."""
    rows = [[" ".join(cell) if isinstance(cell, list) else cell for cell in _row(*one)] for one in _measures(trace)]
    return csv_text(_HEADS, rows)


def _row(measure: Measure, by: str) -> tuple[str, str, list[str], bool, str, str]:
    of: list[str] = [subject for subject in SUBJECTS if subject in measure.of]
    return measure.name, measure.unit, of, measure.adds, measure.about, by
