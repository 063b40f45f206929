"""Try the operations of a, since what both have, in the place of those of b: where both compute a value another way.

No single operation is at fault then, and a value may be paired with one that is not its counterpart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fxdebug.comparison.diagnosis.cause import LONG_LIST, listed
from fxdebug.comparison.diagnosis.missing_steps import ONE, SEVERAL, lacks
from fxdebug.comparison.result import ComparisonData, Kind, Row
from fxdebug.comparison.steps import Step
from fxdebug.operators.names import PICKING, family, role
from fxdebug.repair.candidates.regions_in_turn import Region, RegionsInTurn
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Place
from fxdebug.repair.trials.edit_parts import PlannedEdit, and_more, place_in
from fxdebug.repair.trials.edits_of_operations import OF_REGION
from fxdebug.repair.trials.tried_repairs import (
    first_repair,
    is_repaired_by,
    proven_at,
    says_more_than_a_region,
    with_findings,
)

MOST_NAMED = 4  # operations that one side has more
MOST_FAULTS = 8  # kinds of regions: more say nothing of a cause
IS_GIVEN = " is given "  # of the same operations with other weights


@dataclass(frozen=True)
class _Way:
    """Operations of b and those of a that must stand in their place, wherever the same ones run."""

    of_a: tuple[Step, ...]
    of_b: tuple[Step, ...]  # none where those of a are put behind what b has
    at: Step
    weights: tuple[str, ...]  # that a needs there, and b has nowhere
    edit: PlannedEdit


def told_of_regions(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names some operations of b and those of a that must stand in their place.

    ``None`` where a finding is proven, and where no such operations are found. No run begins after ``until``.
    """
    first = found.first
    kinds = "input", "nonfinite", "random", "weights"
    if first is None or first.kind in kinds or any(row.proven for row in found.findings):
        return None
    turns = RegionsInTurn(runs, until)
    if not turns.repaired():
        tries = ((way.edit, partial(_row, first, way, way.edit)) for x in turns.untold for way in _ways([x], runs))
        return first_repair(found, runs, tries, until)
    ways = _ways(turns.regions, runs)
    together = PlannedEdit("", tuple([part for way in ways for part in way.edit.parts]))
    if not ways or len(ways) > MOST_FAULTS or not is_repaired_by(together, runs):
        return None
    return with_findings(found, [_row(first, way, way.edit, len(ways) - 1) for way in ways])


def says_little(row: Row) -> bool:
    """Does the finding of a region say what operations are given alone? What makes that may be told more closely."""
    return row.by_region and IS_GIVEN in row.because


def rows_of_regions(first: Row, runs: EditedRuns, until: float) -> Iterator[tuple[PlannedEdit, Row]]:
    """Yield the edit that puts regions of a in the place of those of b where b begins to lack what a has."""
    turns = RegionsInTurn(runs, until)
    next(turns.behind_each(), None)
    ways = _ways(turns.regions, runs) or [way for region in turns.untold for way in _ways([region], runs)]
    for way in ways:
        yield way.edit, _row(first, way, way.edit)


def _ways(regions: Sequence[Region], runs: EditedRuns) -> list[_Way]:
    """Return regions with those that are alike as one, in the order in which they stand in b."""
    pairs, _ = runs.pairs()
    steps = [{place_in(step): step for step in run.steps} for run in (pairs.a, pairs.b)]
    sides = [(region.of_a, region.of_b) for region in regions]
    if any(place not in known for places in sides for own, known in zip(places, steps) for place in own):
        return []  # kernels that no graph shows
    groups: dict[object, list[Region]] = {}
    for region in regions:
        line = steps[1][region.part.place].node.source if region.part.place in steps[1] else None
        groups.setdefault((region.names[0], line or region.names[1]), []).append(region)
    return [_way(group, *steps) for group in groups.values()]


def _way(regions: Sequence[Region], in_a: Mapping[Place, Step], in_b: Mapping[Place, Step]) -> _Way:
    shown = regions[0]
    sides = [(shown.of_a, in_a), (shown.of_b, in_b)]
    known = [[steps[place] for place in places if place in steps] for places, steps in sides]
    of_a, of_b = (tuple([step for step in steps if not step.transparent]) or tuple(steps[-1:]) for steps in known)
    at = in_b[shown.part.place]
    given = [(in_a[place], slot) for place, slot in shown.weights if place in in_a]
    names = [str(step.inputs[slot].value.name or "") for step, slot in given if slot < len(step.inputs)]
    weights = tuple(filter(None, names))
    told = listed([step.op for step in of_a]), f" with {listed(weights)}" if weights else ""
    more = f"{and_more(len(regions) - 1)} of this line" if len(regions) > 1 else ""
    words = f"{''.join(told)}{OF_REGION}{at.op}{more}"
    return _Way(of_a, of_b, at, weights, PlannedEdit(words, tuple([region.part for region in regions])))


def _row(first: Row, way: _Way, edit: PlannedEdit, others: int = 0) -> Row:
    """Return the finding; what the first one says is kept where it is about these operations."""
    a, b = (listed([step.op for step in steps]) for steps in (way.of_a, way.of_b))
    kind, because = _difference(way) or ("values", f"{a} in a, {b} in b")
    if not way.of_b:
        kind, because = "missing", lacks([step.op for step in way.of_a], way.of_a[0])
    elif way.weights:
        own = list(dict.fromkeys(str(each.value.name) for step in way.of_b for each in step.weights))
        one, other = listed(way.weights), listed(own) or "no weight"
        because = f"{a}{IS_GIVEN}{one} in a, {other} in b" if a == b else f"{a} with {one} in a, {b} with {other} in b"
    row = proven_at(first, way.at, kind, because, edit.words, way.of_a[-1], by_region=edit.of_region)
    if others:
        with_all = f"with this and {others} more edit{'s' * (others > 1)} b returns what a returns"
        row = row.proven_by(f"{edit.words}: {with_all}", by_region=True)
    in_a = None if first.a is None else first.a.node
    is_named = any(weight in first.because for weight in way.weights)
    is_named = is_named and (first.kind == "missing" or (first.kind == "wiring" and a != b))
    names_it = any(_names_a_module_of(first, weight) for weight in way.weights)
    told = first.position in {step.index for step in way.of_b} or in_a in {step.node.id for step in way.of_a}
    told = told and (not way.weights or (first.kind == "missing" and a != b) or LONG_LIST in because)
    told = told or (a == b and not way.weights)  # of which nothing can be said but that they differ
    told = told and (LONG_LIST not in first.because or LONG_LIST in because)  # few operations say more than many
    told = (told or names_it or is_named) and says_more_than_a_region(first, [step.op for step in way.of_a])
    told = told and (first.kind not in ("missing", "extra") or first.kind == kind or is_named)  # both have something
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
