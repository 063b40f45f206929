"""Try operations of one kind with the settings of a, where no finding says which of b's face which of a's.

A loop of b may stand against one operation of a, and a table may be made by other steps: such operations have no sure
counterparts. So a difference of their settings is no finding, unless b returns what a returns with those of a.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fxdebug.comparison.diagnosis.cause import differing_settings, listed, on_both_sides
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step, StepList
from fxdebug.operators.names import canonical
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, and_more, place_in
from fxdebug.repair.trials.edits_of_operations import with_settings
from fxdebug.repair.trials.edits_with_values import by_itself
from fxdebug.repair.trials.tried_repairs import first_repair, is_settled, proven_at

MOST_KINDS = 8  # of operations that are tried
MOST_PLACES = 512  # of one kind: a loop over a sequence has many

SURE = ("path", "mapping", "weights")  # the pairs whose settings are findings already


def told_of_settings(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names operations with other settings than those of a, where these repair b.

    ``None`` where a finding is proven already, and where no such edit does. No run begins after ``until``.
    """
    if not found.findings or is_settled(found.findings):
        return None
    pairs, _ = runs.pairs()
    tries = itertools.islice(_candidates(pairs), MOST_KINDS)
    rows = ((each.edit, partial(each.row, found.findings[0])) for each in tries)
    return first_repair(found, runs, rows, until)


@dataclass(frozen=True)
class _OtherSettings:
    """Operations of one kind in b, each with one of a whose settings it is tried with."""

    sides: tuple[tuple[Step, Step], ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def edit(self) -> PlannedEdit:
        """The edit of b."""
        make = partial(by_itself, with_settings)
        return PlannedEdit("", tuple([Part(place_in(b), place_in(a), make) for a, b in self.sides]))

    def row(self, shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        one, other = self.sides[0]
        places = and_more(len(self.sides) - 1)
        because = on_both_sides(listed(self.gone), listed(self.new))
        return proven_at(shown, other, "constant", because, f"{other.op} with the settings of a{places}", one)


def _candidates(pairs: Pairs) -> Iterator[_OtherSettings]:
    """Yield operations with other settings than those of a: those paired by order, then all without sure partners."""
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[tuple[Step, Step]]] = defaultdict(list)
    for step in pairs.b.steps:
        pair, partner = pairs.steps.get(step.index), pairs.step_in_a(step)
        if pair is None or partner is None or pair.matched_by in SURE or canonical(partner.op) != canonical(step.op):
            continue
        gone, new = differing_settings(partner, step)
        if gone or new:
            groups[canonical(step.op), tuple(gone), tuple(new)].append((partner, step))
    for (_, of_pair, of_own), sides in groups.items():
        if len(sides) <= MOST_PLACES:
            yield _OtherSettings(tuple(sides), of_pair, of_own)
    for name, (of_a, of_b) in _alone(pairs).items():
        gone, new = differing_settings(of_a[0], of_b[0])
        uniform = all(_has_settings_of(side[0], step) for side in (of_a, of_b) for step in side)
        if (gone or new) and uniform and len(of_b) <= MOST_PLACES and name == canonical(of_a[0].op):
            yield _OtherSettings(tuple([(of_a[0], step) for step in of_b]), tuple(gone), tuple(new))


def _alone(pairs: Pairs) -> dict[str, tuple[Sequence[Step], Sequence[Step]]]:
    """Return the operations without a sure partner, by name, where both runs have some."""
    sides: list[dict[str, list[Step]]] = []
    for run in (pairs.a, pairs.b):
        free = defaultdict(list)
        for step in _without_partners(pairs, run):
            free[canonical(step.op)].append(step)
        sides.append(free)
    return {name: (steps, sides[1][name]) for name, steps in sides[0].items() if name in sides[1]}


def _without_partners(pairs: Pairs, run: StepList) -> Iterator[Step]:
    for step in run.steps:
        other = pairs.steps_of_a.get(step.index) if run is pairs.a else step.index
        pair = None if other is None else pairs.steps.get(other)
        if step.outputs and not step.unrecorded and (pair is None or pair.matched_by not in SURE):
            yield step


def _has_settings_of(one: Step, other: Step) -> bool:
    return not any(differing_settings(one, other))
