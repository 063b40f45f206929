"""Try operations of b with another value than they are given: what that was made of, or what else was made of it.

The scores before their bias or after it, what a norm is given or what it returns: both are there, have one shape and
often the same statistics, and code that takes the wrong one has the same operations as the right code.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import PICKING
from fxdebug.repair.candidates.variations.list_of_all import may_be_varied
from fxdebug.repair.candidates.variations.variation import NEEDED
from fxdebug.repair.candidates.varied_operations import first_look, rows_to_look_at, seen_operations, steps_around
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Ran, is_inplace
from fxdebug.repair.trials.edit_parts import Part, PlannedEdit, Source, and_more, line_of, number_of, place_in
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of
from fxdebug.repair.trials.tried_repairs import first_repair, is_settled, proven_at

MOST_RUNS = 40
NEAR = 32  # operations before and after the first finding
DEEP = 3  # operations from the value that is given to the one that should be


def told_of_earlier_values(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names an operation of b that must be given another value, for both to return the same.

    ``None`` where a finding is proven already, and where no such value is found. No run begins after ``until``.
    """
    if is_settled(found.findings):
        return None
    tries = (
        (each.edit(sites), partial(each.row, sites, first))
        for first in rows_to_look_at(found)
        if first.doubtful or first.kind not in ("wiring", "constant")  # it is told already
        for each, sites in _tries(first, runs, until)[:MOST_RUNS]
    )
    return first_repair(found, runs, tries, until)


@dataclass(frozen=True)
class _Other:
    """An operation of b, which of its tensors, and what should be in its place: a result of another operation."""

    step: Step
    slot: int
    given: Step  # that makes what it is given
    wanted: Step
    value: Value
    is_before: bool  # it is what the other one was made of

    def edit(self, sites: Sequence[tuple[Step, Source]]) -> PlannedEdit:
        """Return the edit of b at some sites."""
        make = partial(_given, self.slot)
        return PlannedEdit(
            self._words(sites), tuple([Part(place_in(s), None, make, ((self.slot, x),)) for s, x in sites])
        )

    def row(self, sites: Sequence[tuple[Step, Source]], shown: Row) -> Row:
        """Return the finding, with the error of the one that it stands for."""
        told = f"{self.step.op} is given the result of {self.given.op}{NEEDED}{self._wanted}"
        return proven_at(shown, self.step, "wiring", told, self._words(sites))

    def _words(self, sites: Sequence[tuple[Step, Source]]) -> str:
        return f"{self.step.op} given {self._wanted}{and_more(len(sites) - 1)}"

    @property
    def _wanted(self) -> str:
        return f"what {self.given.op} is given" if self.is_before else f"the result of {self.wanted.op}"


def _tries(first: Row, runs: EditedRuns, until: float) -> list[tuple[_Other, list[tuple[Step, Source]]]]:
    """Return what may be tried: first what makes the first value that differs equal, then operations that pick."""
    pairs, _ = runs.pairs()
    steps = steps_around(pairs, first, "b", NEAR)
    seen = seen_operations(steps, runs, "b")
    ran = [(step, seen[place_in(step)]) for step in steps if place_in(step) in seen]
    is_repaired = first_look(first, runs, "b", ran)
    promising, others = [], []
    for at, (step, each) in list(enumerate(ran))[::-1]:
        if time.monotonic() > until:
            break
        if step.transparent or step.name.endswith("_like") or not may_be_varied(step.name, each):
            continue
        if all(value.dtype not in EPS for value in step.outputs):
            continue  # another value may lie on the same side of a bound: that is no cause
        for other in _others(pairs.b, step):
            source = seen.get(place_in(other.wanted))
            changed = None if source is None else partial(_with_result, pairs.b, other, source)
            sites = list(_sites(pairs.b, other))
            if changed is not None and is_repaired({at: changed}):
                promising += [(other, each) for each in sites]
            else:
                others.append((other, sites[0]))
    return [*promising, *sorted(others, key=lambda each: each[0].step.name not in PICKING)]


def _with_result(run: StepList, other: _Other, source: Ran, ran: Ran) -> Any:
    number = number_of(run, other.value, other.wanted)
    return _given(other.slot, None, ran, {other.slot: source.result if number is None else source.result[number]})


def _others(run: StepList, step: Step) -> Iterator[_Other]:
    """Yield the other values that an operation may be meant to be given: near ones first."""
    for slot, given in enumerate(step.inputs):
        own = run.makers.get(given.value.number)
        if given.is_weight or own is None or own.unrecorded or given.value.dtype not in EPS:
            continue
        before = _before(run, given.value)
        after = (made for user in run.users.get(run.root(given.value).number, ()) for made in _made(user, step))
        for value, is_before in (*((value, True) for value in before), *((value, False) for value in after)):
            maker = run.makers.get(value.number)
            known = maker is not None and not maker.unrecorded and maker.index < step.index and _fits(value, given)
            # what is used once is no other name for it
            if known and maker is not None and max(_uses(run, value), _uses(run, given.value)) > 1:
                yield _Other(step, slot, own, maker, value, is_before)


def _before(run: StepList, value: Value) -> Iterator[Value]:
    """Yield what a value was made of, and what that was made of."""
    known = [value]
    for _ in range(DEEP):
        makers = [run.makers.get(each.number) for each in known]
        known = [given.value for maker in makers if maker is not None for given in maker.data]
        yield from known


def _uses(run: StepList, value: Value) -> int:
    return sum(not user.transparent for user in run.users.get(run.root(value).number, ()))


def _made(user: Step, step: Step) -> Sequence[Value]:
    return user.outputs if user.index < step.index else ()


def _fits(value: Value, given: StepInput) -> bool:
    return (value.shape, value.dtype) == (given.value.shape, given.value.dtype) and value.number != given.value.number


def _sites(run: StepList, other: _Other) -> Iterator[list[tuple[Step, Source]]]:
    """Yield where it may be so: in all of the line, and at this place alone."""
    number = number_of(run, other.value, other.wanted)
    lines = line_of(run, other.step), line_of(run, other.wanted)
    both = list(zip(*lines))
    if len(lines[0]) == len(lines[1]) > 1 and (other.step, other.wanted) in both:
        yield [(step, Source(place_in(maker), number)) for step, maker in both]
    yield [(other.step, Source(place_in(other.wanted), number))]


def _given(slot: int, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation with one of its tensors replaced by another value of b."""
    tensors = tensors_of(ours)
    if is_inplace(ours) or slot >= len(tensors) or tensors[slot].shape != own[slot].shape:
        raise NoEdit
    return computed_with(ours, {slot: own[slot].to(tensors[slot].dtype)})
