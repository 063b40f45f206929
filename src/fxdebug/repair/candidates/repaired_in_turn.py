"""Repair the faults of b one after the other: each in runs with those before it repaired.

Where the same fault is in several layers, what the later ones are given differs, too, so that nothing in two plain runs
says what they should return. Behind a repair they are given what a's are given, and can be tried themselves.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from fxdebug.comparison.diagnosis.weights.folded_norm import FOLDED
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.repair.candidates.other_regions import rows_of_regions
from fxdebug.repair.candidates.varied_operations import promising_edits, rows_to_look_at
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from fxdebug.repair.trials.edit_parts import PlannedEdit
from fxdebug.repair.trials.edits_of_operations import IN_ITS_PLACE
from fxdebug.repair.trials.planned_edits import EditPlan
from fxdebug.repair.trials.tried_repairs import (
    edits_at,
    is_repaired_by,
    proven_by_edit,
    returns_the_same,
    with_findings,
)

MOST_FAULTS = 8  # of a model: a layer more or less for each
MOST_EDITS = 6  # of one fault and one kind, each of which takes a run and a comparison

Tries: TypeAlias = Callable[[Row, EditedRuns, float], Iterator[tuple[PlannedEdit, Row]]]
"""Yields edits that may repair the first finding of some runs, each with its own finding; none after a time."""


def told_in_turn(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison with the faults that all have to be repaired, in the order in which they show.

    Each edit says what is wrong: no operation of a is put in the place of one of b, nor a region.

    ``None`` where a finding is proven already, and where no such edits make b return what a returns. No run begins
    after ``until``.
    """
    return _told_in_turn(found, runs, until, _that_say_why)


def told_in_turn_by_all(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return the same with operations computed another way, and with operations of a, among the edits."""
    return _told_in_turn(found, runs, until, _of_all_kinds) if rows_to_look_at(found) else None


def _told_in_turn(found: ComparisonData, runs: EditedRuns, until: float, tries: Tries) -> ComparisonData | None:
    first = runs.plain.first
    if runs.again is None or first is None or not found.findings or any(row.proven for row in found.findings):
        return None
    chosen: list[tuple[PlannedEdit, Row]] = []
    current = runs
    while len(chosen) < MOST_FAULTS and FOLDED not in first.because:  # the weights of a are none for a folded norm
        step = _next(current, first, until, tries)
        if step is None:
            return None
        edit, row, behind = step
        places = {part.place for part in edit.parts}  # a later edit of a place is made instead of an earlier one
        chosen = [(known, of) for known, of in chosen if not {part.place for part in known.parts} <= places]
        chosen.append((edit, row))
        # without a difference beyond tolerance from the start, only what is the same to the last bit is repaired
        is_equal = behind.plain.first is None and not returns_the_same(runs.plain)
        if is_equal or is_repaired_by(edit, current):
            return _told(found, chosen) if len(chosen) > 1 else None  # single edits are tried by themselves
        if behind.plain.first is None:
            return None
        first, current = behind.plain.first, behind
    return None


def _next(current: EditedRuns, first: Row, until: float, tries: Tries) -> tuple[PlannedEdit, Row, EditedRuns] | None:
    """Return the edit behind which b differs later than before, with these runs; ``None`` where none is known."""
    assert current.again is not None
    for edit, row in tries(first, current, until):
        if time.monotonic() > until:
            return None
        made = edits_at(edit, current)
        stepper = ReplacedOperations(made)
        try:
            trace, comparison = current.again(stepper)
        except Exception:  # of the model, with an operation that was replaced
            continue
        later = comparison.first is None or comparison.first.position > max(first.position, row.position)
        if later and stepper.made == made.keys():
            return edit, row, current.behind(made, trace, comparison)
    return None


def _planned(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[PlannedEdit, Row]]:
    yield from ((edit, first) for edit in EditPlan(runs).edits(first)[:MOST_EDITS])


def _that_say_why(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[PlannedEdit, Row]]:
    yield from (each for each in _planned(first, runs, until) if IN_ITS_PLACE not in each[0].words)


def _of_all_kinds(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[PlannedEdit, Row]]:
    for tries in (_planned, promising_edits, rows_of_regions):
        yield from itertools.islice(tries(first, runs, until), MOST_EDITS)


def _told(found: ComparisonData, chosen: list[tuple[PlannedEdit, Row]]) -> ComparisonData:
    more = len(chosen) - 1
    with_all = f"with this and {more} more edit{'s' * (more > 1)}"
    known = {(row.path, row.op, row.kind): row for row in reversed(found.findings)}
    told = [row if row.proven else known.get((row.path, row.op, row.kind), row) for _, row in chosen]
    rows = [
        proven_by_edit(row, edit, f"{edit.words}: {with_all} b returns what a returns")
        for (edit, _), row in zip(chosen, told)
    ]
    return with_findings(found, rows)
