"""The measures of two runs side by side: a report with one row for each pair of calls or operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fxdebug.analyses.measures import available, derive
from fxdebug.comparison.result import ComparisonData, Side
from fxdebug.data.calls import Note
from fxdebug.data.measures import CALL, OPERATION, Measure, names_in
from fxdebug.data.report import Column, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.query.measures import number_of, require_measure
from fxdebug.query.network import network_of


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """A pair of calls or operations with the numbers of both runs; ``ratio`` is b / a, ``None`` where a is 0.

    ``call`` and ``type`` are those of b: the id of the call or operation, and its class or name. ``partner`` is the
    id in a.
    """

    call: str
    type: str
    a: float
    b: float
    ratio: float | None
    partner: str


def measured_pairs(comparison: ComparisonData, measures: str | Sequence[str]) -> ReportData[MeasuredPair]:
    """Return the numbers of paired calls, those with the largest difference first; of operations if calls have none.

    The rows are those of the first measure; further measures are ``parts``. Raises ``UsageError`` for no measure, for
    one that a run does not have, and for one of neither calls nor operations.
    """
    names = names_in(measures)
    if not any(names):
        raise UsageError("no measure to compare: name some, such as time.self")
    for side, trace in (("a", comparison.a), ("b", comparison.b)):
        derive(trace, *names)
        for name in names:
            if name not in available(trace):
                raise UsageError(f"{side} has no measure {name!r}: attach it with with_measures, or with --into RUN")
    first, *further = [_report(comparison, require_measure(comparison.b, name, (CALL, OPERATION))) for name in names]
    return replace(first, parts=tuple(further))


def _report(comparison: ComparisonData, measure: Measure) -> ReportData[MeasuredPair]:
    columns = (
        Column("call", "call"),
        Column("type", "type"),
        Column("a", "a", measure.unit, f"{measure.about}, in a", adds=measure.adds),
        Column("b", "b", measure.unit, f"{measure.about}, in b", adds=measure.adds),
        Column("ratio", "b / a", "", "the number of b by that of a", quotient=("b", "a")),
        Column("partner", "in a", "", "the call or operation of a", shown=False),
    )
    pairs = sorted(_pairs(comparison, measure), key=lambda pair: (-abs(pair[1].b - pair[1].a), pair[0]))
    rows = tuple([row for _, row in pairs])
    notes = () if rows else (Note(f"no pair of calls or operations has {measure.name} on both sides"),)
    return ReportData(
        "comparison", comparison.b.model, columns, rows, notes=notes, settings={"by": measure.name}, ranked=False
    )


def _pairs(comparison: ComparisonData, measure: Measure) -> Iterator[tuple[int, MeasuredPair]]:
    """Yield the pairs in which both sides have a number, each with the place of its call in b."""
    seen = set()
    for row in comparison.rows:
        if row.a is None or row.b is None or (row.a.node, row.b.node) in seen:
            continue
        if row.op is not None and CALL in measure.of:  # its calls have the numbers of operations in them
            continue
        seen.add((row.a.node, row.b.node))
        a, b = (_number(*side, measure) for side in ((comparison.a, row.a), (comparison.b, row.b)))
        if a is not None and b is not None:
            kind = row.b.op or row.b.type
            yield row.b.call.index, MeasuredPair(_id(row.b), kind, a, b, b / a if a else None, _id(row.a))


def _id(side: Side) -> str:
    return side.node or side.call.id


def _number(trace: TraceData, side: Side, measure: Measure) -> float | None:
    """Return the number of one side; complex ones by their magnitude."""
    item = side.call if side.op is None else network_of(trace).nodes.get(side.node or "")
    found = None if item is None else number_of(trace, item, measure.name)
    return abs(found) if isinstance(found, complex) else found
