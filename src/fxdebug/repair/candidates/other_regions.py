"""Try the operations of a, since what both have, in the place of those of b: where both compute a value another way.

No single operation is at fault then, and a value may be paired with one that is not its counterpart. Of all pairs of
values around the first difference, the one with the fewest operations on both sides is told.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fxdebug.comparison.diagnosis.cause import LONG_LIST, listed
from fxdebug.comparison.diagnosis.missing_steps import ONE, SEVERAL, lacks
from fxdebug.comparison.diagnosis.region import region_of
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Kind, Row
from fxdebug.comparison.steps import Step
from fxdebug.data.values import Value
from fxdebug.operators.names import PICKING, family, role
from fxdebug.repair.candidates.varied_operations import rows_to_look_at, steps_around
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.trials.edit_parts import PlannedEdit
from fxdebug.repair.trials.planned_edits import EditPlan
from fxdebug.repair.trials.tried_repairs import first_repair, proven_at, says_more_than_a_region

MOST_RUNS = 48
MOST_NAMED = 4  # operations that one side has more
MOST_STEPS = 16  # of both sides together: more say nothing of a cause


@dataclass(frozen=True)
class _Way:
    """A value of a and one of b that may be meant to be the same, and the operations that make them."""

    wanted: Value
    own: Value
    of_a: tuple[Step, ...]
    of_b: tuple[Step, ...]
    weights: tuple[str, ...]  # that a needs there, and no operation of b is given
    edits: tuple[PlannedEdit, ...]

    @property
    def size(self) -> int:
        """The number of operations that compute, on both sides, and of weights that only a uses."""
        return len(self.of_a) + len(self.of_b) + len(self.weights)


def told_of_regions(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names some operations of b and those of a that must stand in their place.

    ``None`` where a finding is proven, and where no such operations are found. No run begins after ``until``.
    """
    if any(row.proven for row in found.findings):
        return None
    tries = (
        (edit, partial(_row, first, way, edit))
        for first in rows_to_look_at(found)
        for way, edit in _edits_of_regions(first, runs, until)
    )
    return first_repair(found, runs, tries, until)


def rows_of_regions(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[PlannedEdit, Row]]:
    """Yield the edits that put a region of a in the place of one of b, each with its finding.

    Those that end with the same operation come first: in a run with several faults nothing else says what faces what.
    """
    tries = _edits_of_regions(first, runs, until)
    for way, edit in sorted(tries, key=lambda each: each[0].of_a[-1].name != each[0].of_b[-1].name):
        yield edit, _row(first, way, edit)


def _edits_of_regions(first: Row, runs: EditedRuns, until: float) -> list[tuple[_Way, PlannedEdit]]:
    """Return the edits of regions with few operations first, and of each one those of its whole line first."""
    ways = sorted(_ways(first, runs, until), key=lambda way: way.size)
    return [(way, edit) for way in ways for edit in reversed(way.edits)][:MOST_RUNS]


def _ways(first: Row, runs: EditedRuns, until: float) -> Iterator[_Way]:
    """Yield the pairs of values around the first difference that are different, of one shape, made from equal ones."""
    pairs, meter = runs.pairs()
    plan = EditPlan(runs)
    values = [[value for step in steps_around(pairs, first, side) for value in _values(step)] for side in ("a", "b")]
    for wanted, own in itertools.product(*values):
        if time.monotonic() > until:
            return
        same_kind = (wanted.shape, wanted.dtype) == (own.shape, own.dtype)
        if not same_kind or meter(wanted, own).error <= meter.tolerance(wanted, own):
            continue
        region = plan.region_of(wanted, own)
        if region is None:
            continue
        of_a = tuple(region.named)
        of_b = _of_b(pairs, own, plan)
        if of_a and of_b and len(of_a) + len(of_b) <= MOST_STEPS:
            yield _Way(wanted, own, of_a, of_b, tuple(region.weights), tuple(plan.edits_of_region(region, wanted, own)))


def _values(step: Step) -> Sequence[Value]:
    return () if step.unrecorded or step.transparent else step.outputs


def _of_b(pairs: Pairs, own: Value, plan: EditPlan) -> tuple[Step, ...]:
    """Return the operations of b that make a value, since those that a has, too."""
    return region_of(pairs.b, own, plan.has_equal_in_a, through=True).computing


def _row(first: Row, way: _Way, edit: PlannedEdit) -> Row:
    """Return the finding; what the first one says is kept where it is about these operations."""
    at = max(way.of_b, key=lambda step: step.index)
    a, b = (listed([step.op for step in steps]) for steps in (way.of_a, way.of_b))
    kind, because = _difference(way) or ("values", f"{a} in a, {b} in b")
    if way.weights:
        own = list(dict.fromkeys(str(each.value.name) for step in way.of_b for each in step.weights))
        one, other = listed(way.weights), listed(own) or "no weight"
        because = f"{a} is given {one} in a, {other} in b" if a == b else f"{a} with {one} in a, {b} with {other} in b"
    row = proven_at(first, at, kind, because, edit.words, by_region=edit.of_region)
    in_a = None if first.a is None else first.a.node
    names_it = any(_names_a_module_of(first, weight) for weight in way.weights)
    told = first.position in {step.index for step in way.of_b} or in_a in {step.node.id for step in way.of_a}
    told = told and (not way.weights or (first.kind == "missing" and a != b))
    told = told or (a == b and not way.weights)  # of which nothing can be said but that they differ
    told = told and (LONG_LIST not in first.because or LONG_LIST in because)  # few operations say more than many
    told = (told or names_it) and says_more_than_a_region(first, [step.op for step in way.of_a])
    return first.proven_by(row.repair, by_region=row.by_region) if told else row


def _difference(way: _Way) -> tuple[Kind, str] | None:
    """Return which operations one side has more; ``None`` where both have others, or weights are among them."""
    one, other = ([_what_it_does(step) for step in steps] for steps in (way.of_a, way.of_b))
    gone, new = _left(way.of_a, other), _left(way.of_b, one)
    if way.weights or bool(gone) == bool(new) or len(gone or new) > MOST_NAMED:
        return None
    if new:
        return "extra", f"{listed([step.op for step in new])}{ONE if len(new) == 1 else SEVERAL}a"
    return "missing", lacks([step.op for step in gone], gone[0])


def _left(steps: Sequence[Step], others: Sequence[str]) -> list[Step]:
    """Return the operations that are left of some where each of others takes away one that does the same."""
    counts, left = Counter(others), []
    for step in steps:
        counts[_what_it_does(step)] -= 1
        if counts[_what_it_does(step)] < 0:
            left.append(step)
    return left


def _what_it_does(step: Step) -> str:
    return "getitem" if step.name in PICKING else role(family(step.name))


def _names_a_module_of(row: Row, weight: str) -> bool:
    """Does a finding begin with a module that a weight is in?"""
    word = row.because.partition(" ")[0]
    return weight.startswith(f"{word}.")
