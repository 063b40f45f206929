"""Try operations in another way than they are written: exchanged, with another setting, another grouping, shifted.

The values of both ways may have the same statistics, and the other run may have other operations there, so that nothing
in two runs says which is right: a way that makes both return the same is.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from torch import Tensor

from fxdebug.api.candidates.groupings import groupings, is_undone_by
from fxdebug.api.candidates.variation import Variation, changes_something
from fxdebug.api.candidates.variations import kinds_of_variations, may_be_varied
from fxdebug.api.comparison import Comparison
from fxdebug.api.rerun.edited_runs import EditedRuns
from fxdebug.api.trials.edit_parts import Part, PlannedEdit, place_in
from fxdebug.api.trials.edits_of_operations import NoEdit, is_inplace
from fxdebug.api.trials.tried_repairs import is_repaired_by, is_settled, proven_at, with_findings
from fxdebug.capture.pausing.replaced_operations import Place, Ran, ReplacedOperations
from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.region import region_of
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Row
from fxdebug.comparison.steps import Step, StepList

MOST_RUNS = 200
MOST_PLACES = 64  # of one line
MOST_STEPS = 40  # of a region: operations that are kept with what they are given
NEAR = 12  # operations before and after the first finding
MOST_NUMBERS = 12  # of the other run, that are tried in the place of one

Side = Literal["a", "b"]


def told_of_variations(found: Comparison, runs: EditedRuns, until: float) -> Comparison | None:
    """Return a comparison that names an operation that must be computed another way, for both to return the same.

    Operations of b are tried first, then those of a: b may have written out what a does in one operation. ``None``
    where a finding is proven or names a weight or an order already, and where no such way is found. No run begins
    after ``until``.
    """
    first = found.first
    if first is None or first.kind == "weights" or is_settled(found.findings):
        return None
    if first.kind == "wiring" and "another order" in first.because:
        return None  # it is told already
    pairs, _ = runs.pairs()
    for side in ("b", "a"):
        for each in itertools.islice(_tries(pairs, first, runs, side), MOST_RUNS):
            if time.monotonic() > until:
                return None
            if is_repaired_by(each.edit, runs, side):
                return with_findings(found, [each.row(first)])
    return None


@dataclass(frozen=True)
class _Varied:
    """Operations of a run, with the other way to compute each: those of a line, or two views that belong together."""

    side: Side
    ways: tuple[tuple[Step, Variation], ...]

    @property
    def edit(self) -> PlannedEdit:
        """The edit of that run."""
        parts = [Part(place_in(step), None, partial(_changed, way)) for step, way in self.ways]
        return PlannedEdit("", tuple(parts))

    def row(self, shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        step, way = self.ways[0]
        more = len(self.ways) - 1
        places = f", and at {more} more place{'s' * (more > 1)}" if more else ""
        because, edit = (text.format(op=step.op) for text in (way.because, way.edit))
        if self.side == "b":
            return proven_at(shown, step, _kind(way), because, f"{edit}{places}")
        turned = because.replace(" in b, where a's values need ", " in a, where b's values need ")
        return replace(
            shown,
            kind=_kind(way),
            because=f"{step.op} of a: {turned}",
            proven=True,
            repair=f"{edit}{places}: with this edit a returns what b returns",
        )


def _kind(way: Variation) -> Literal["constant", "wiring"]:
    return "constant" if "=" in way.because else "wiring"


def _tries(pairs: Pairs, first: Row, runs: EditedRuns, side: Side) -> Iterator[_Varied]:
    """Yield the ways of the operations that the first finding depends on since both are equal, and of those around it.

    Two values that are taken for each other show where each is made, before what takes them. The last ones come first.
    """
    run = pairs.a if side == "a" else pairs.b
    steps, numbers = _region(pairs, first, side), _numbers(_region(pairs, first, "b" if side == "a" else "a"))
    seen = _seen(steps, runs, side)
    known = [(step, seen[place_in(step)]) for step in reversed(steps) if place_in(step) in seen]
    known = [(step, ran) for step, ran in known if may_be_varied(step.name, ran)]
    for vary in kinds_of_variations():
        for step, ran in known:
            for way in vary(step.name, ran, numbers):
                if changes_something(way, ran):
                    line = _line(run, step)
                    for chosen in dict.fromkeys([line, (step,)]):
                        yield _Varied(side, tuple([(each, way) for each in chosen]))
    for (later, back), (step, ran) in itertools.combinations(known, 2):
        yield from _both_views(side, run, (step, ran), (later, back))


def _line(run: StepList, step: Step) -> tuple[Step, ...]:
    """Return what the line of an operation ran of its kind: in a loop, or in the calls of several layers."""
    source = step.node.source
    line = () if source is None else tuple([s for s in run.steps if s.node.source == source and s.op == step.op])
    return line if 1 < len(line) <= MOST_PLACES else (step,)


def _both_views(side: Side, run: StepList, one: tuple[Step, Ran], other: tuple[Step, Ran]) -> Iterator[_Varied]:
    """Yield a view and the one that undoes it, both with another grouping, in all places of their lines."""
    (step, ran), (later, back) = one, other
    if not is_undone_by(ran, back):
        return
    for way, way_back in itertools.product(groupings(step.name, ran), groupings(later.name, back)):
        if way.factors and way_back.factors and way_back.factors == (way.factors[0], not way.factors[1]):
            places = [(each, way) for each in _line(run, step)]
            yield _Varied(side, (*places, *((each, way_back) for each in _line(run, later))))


def _region(pairs: Pairs, first: Row, side: Side) -> list[Step]:
    """Return the operations of a run that may be at fault, in execution order."""
    run, shown = (pairs.a, first.a) if side == "a" else (pairs.b, first.b)
    if shown is None:
        return []
    firm = pairs.is_firm_in_a if side == "a" else pairs.is_firm
    region = () if shown.value is None else region_of(run, shown.value, firm, through=True).steps
    at = first.position if side == "b" else max((step.index for step in region), default=None)
    inside = {call.index for call in shown.call.walk()}
    around = [s for s in run.steps if at is not None and s.call.index in inside and abs(s.index - at) <= NEAR]
    steps = {step.index: step for step in (*region, *around) if not step.unrecorded}
    return [steps[index] for index in sorted(steps)][-MOST_STEPS:]


def _numbers(steps: Sequence[Step]) -> list[float]:
    """Return the numbers among the settings of some operations."""
    texts = [text.partition("=")[2] or text for step in steps for text in step.constants]
    known = [number for text in texts for number in [number_in(text)] if number is not None and math.isfinite(number)]
    return list(dict.fromkeys(known))[:MOST_NUMBERS]


def _seen(steps: Sequence[Step], runs: EditedRuns, side: Side) -> dict[Place, Ran]:
    """Return some operations as they ran, in one more run."""
    seen: dict[Place, Ran] = {}

    def keep(place: Place, ran: Ran) -> Any:
        seen[place] = ran
        return ran.result

    places = [place_in(step) for step in steps]
    runs.run(side, ReplacedOperations({place: partial(keep, place) for place in places}))
    return seen


def _changed(way: Variation, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    if is_inplace(ours):
        raise NoEdit
    return way.change(ours)
