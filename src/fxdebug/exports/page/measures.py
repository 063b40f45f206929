"""The measures of a run as columns: by call and by step of a graph."""

from __future__ import annotations

from typing import Any

from fxdebug.analyses.measures import derive_all
from fxdebug.data.calls import Note
from fxdebug.data.measures import CALL, OPERATION, SUBJECTS, Measure, Taken
from fxdebug.data.trace import TraceData
from fxdebug.exports.page.pack import Column, integers, reals
from fxdebug.exports.page.places import Places
from fxdebug.printable import printable
from fxdebug.query.measures import OF_TENSORS, derived, measures_of, number_of

_NAN = float("nan")


def measure_data(trace: TraceData, places: Places) -> tuple[list[dict[str, Any]], list[Note]]:
    """Return every measure that the run has numbers of, with those of calls and operations, and notes on the others."""
    notes = derive_all(trace)
    taken = {**derived(trace), **trace.taken}
    known = measures_of(trace)
    return [_measure(trace, measure, taken.get(name), places) for name, measure in known.items()], notes


def _measure(trace: TraceData, measure: Measure, taken: Taken | None, places: Places) -> dict[str, Any]:
    calls: Column | None = None
    steps: dict[str, Column] | None = None
    if taken is not None:
        calls, steps = _taken(trace, taken, places)
    elif measure.name not in OF_TENSORS and CALL in measure.of:
        numbers = [number_of(trace, call, measure.name) for call in trace.calls]
        calls = reals([_NAN if one is None else float(one) for one in numbers])  # type: ignore[arg-type]
    return {
        "name": measure.name,
        "unit": measure.unit,
        "about": printable(measure.about),
        "of": [subject for subject in SUBJECTS if subject in measure.of],
        "adds": measure.adds,
        "own": measure.own,
        "by": "" if taken is None else printable(taken.by),
        "calls": calls,
        "steps": steps,
    }


def _taken(trace: TraceData, taken: Taken, places: Places) -> tuple[Column | None, dict[str, Column] | None]:
    of_calls = [_NAN] * len(trace.calls)
    at: list[int] = []
    numbers: list[float] = []
    for id, number in taken.numbers.items():
        call, step = places.of_node(id)
        if step >= 0:
            at.append(step)
            numbers.append(float(number))
        elif call >= 0:
            of_calls[call] = float(number)
    calls = reals(of_calls) if CALL in taken.measure.of else None
    return calls, {"at": integers(at), "number": reals(numbers)} if OPERATION in taken.measure.of else None
