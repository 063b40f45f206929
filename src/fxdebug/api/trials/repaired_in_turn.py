"""Repair the faults of b one after the other: each in a run with those before it repaired.

Where the same fault is in several layers, what the later ones are given differs, too, so that nothing in two plain runs
says what they should return. Behind a repair they are given what a's are given, and can be tried themselves.
"""

from __future__ import annotations

import time
from dataclasses import replace

from fxdebug.api.comparison import Comparison
from fxdebug.api.rerun.edited_runs import EditedRuns
from fxdebug.api.trials.edit_parts import Part, PlannedEdit
from fxdebug.api.trials.planned_edits import EditPlan
from fxdebug.api.trials.tried_repairs import edits_at, is_repaired_by, with_findings
from fxdebug.capture.pausing.replaced_operations import ReplacedOperations
from fxdebug.comparison.diagnosis.weights.folded_norm import FOLDED
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.data.trace import TraceData

MOST_FAULTS = 8  # of a model: a layer more or less for each
MOST_EDITS = 6  # of one fault, each of which takes a run and a comparison


def told_in_turn(found: Comparison, runs: EditedRuns, until: float) -> Comparison | None:
    """Return a comparison with the faults that all have to be repaired, in the order in which they show.

    ``None`` where a finding is proven already, and where no such edits make b return what a returns. No run begins
    after ``until``.
    """
    first = runs.plain.first
    if runs.again is None or first is None or any(row.proven for row in found.findings):
        return None
    chosen: list[tuple[Row, PlannedEdit]] = []
    current = runs
    while len(chosen) < MOST_FAULTS and FOLDED not in first.because:  # the weights of a are none for a folded norm
        step = _next(current, first, chosen, runs, until)
        if step is None:
            return None
        edit, trace, comparison = step
        chosen.append((first, edit))
        if comparison.first is None or is_repaired_by(_joined(chosen), runs):
            return _told(found, chosen) if len(chosen) > 1 else None
        first = comparison.first
        current = replace(runs, b=replace(runs.b, trace=trace), plain=comparison, _paired=None, _again={})
    return None


def _next(
    current: EditedRuns,
    row: Row,
    chosen: list[tuple[Row, PlannedEdit]],
    runs: EditedRuns,
    until: float,
) -> tuple[PlannedEdit, TraceData, ComparisonData] | None:
    """Return the edit behind which b differs later than before, with that run; ``None`` where none is known."""
    taken = {part.place for _, edit in chosen for part in edit.parts}
    for edit in EditPlan(current).edits(row)[:MOST_EDITS]:
        if time.monotonic() > until:
            return None
        if taken & {part.place for part in edit.parts}:
            continue
        made = edits_at(_joined([*chosen, (row, edit)]), runs)
        stepper = ReplacedOperations(made)
        assert runs.again is not None
        try:
            trace, comparison = runs.again(stepper)
        except Exception:  # of the model, with an operation that was replaced
            continue
        later = comparison.first is None or comparison.first.position > row.position
        if later and stepper.made == made.keys():
            return edit, trace, comparison
    return None


def _joined(chosen: list[tuple[Row, PlannedEdit]]) -> PlannedEdit:
    parts: list[Part] = [part for _, edit in chosen for part in edit.parts]
    return PlannedEdit("", tuple(parts))


def _told(found: Comparison, chosen: list[tuple[Row, PlannedEdit]]) -> Comparison:
    more = len(chosen) - 1
    proof = f"with this and {more} more edit{'s' * (more > 1)} b returns what a returns"
    known = {(row.path, row.op, row.kind): row for row in reversed(found.findings)}
    rows = [
        replace(known.get((row.path, row.op, row.kind), row), proven=True, repair=f"{edit.words}: {proof}")
        for row, edit in chosen
    ]
    return with_findings(found, rows)
