"""Find the step that puts elements into another order. Its statistics do not show this; those of a later step do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fxdebug.comparison.constants import as_written
from fxdebug.comparison.diagnosis.cause import Cause, differing_settings, listed, make_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, draws_random
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.thresholds import FAR, FEW, FEW_TIMES
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    BY_RANK,
    COMMUTATIVE,
    COPYING,
    PICKING,
    REORDERING,
    REORDERING_VIEWS,
    SLICES,
    TRANSPARENT,
)

PERMUTING = ("randperm", "multinomial")
MOVES = frozenset(["roll", "flip", "fliplr", "flipud", "rot90"])
INDEXING = BY_RANK | frozenset(["where", "nonzero", "argwhere", "eq", "one_hot", "floor_divide", "bincount"])
ARRANGING = COPYING | REORDERING | SLICES


class ElementOrder(NamedTuple):
    """The step that changes the order, the kind of finding, and the reason."""

    kind: Kind
    step: Step
    because: str


def inputs_swapped(judge: Judge, result: StepResult) -> ElementOrder | None:
    """Return a step on the way to this one that is given the same values in another order."""
    for step, partner, _ in _steps_before(judge, result):
        if step.name != partner.name or step.name in COMMUTATIVE or step.transparent:
            continue
        one, other = ([judge.pairs.a.root(g.value).number for g in partner.data], [g.value for g in step.data])
        partners = [judge.pairs.value_in_a(value) for value in other]
        numbers = [None if value is None else value.number for value in partners]
        if len(set(one)) > 1 and numbers != one and sorted(map(str, numbers)) == sorted(map(str, one)):
            return ElementOrder("wiring", step, f"{step.op} is given the same values in another order")
    return None


def order_drawn(judge: Judge, result: StepResult) -> Step | None:
    """Return a step on the way to this one that draws a permutation in both runs: its statistics do not show which."""
    for step, partner, _ in _steps_before(judge, result):
        if step.name in PERMUTING and draws_random(step) and partner.name == step.name:
            return step
    return None


def parts_exchanged(judge: Judge, result: StepResult) -> ElementOrder | None:
    """Return the step that is given the parts of a value in another order than in a, where they are cut alike.

    Each part then has a counterpart, but another one than by its turn.
    """
    step, partner = result.step, result.partner
    if step.name not in SLICES or step.name != partner.name:
        return None
    cut = [_cut_alike(run, each) for run, each in ((judge.pairs.a, partner), (judge.pairs.b, step))]
    if len(cut[0]) < 2 or sorted(s.constants for s in cut[0]) != sorted(s.constants for s in cut[1]):
        return None
    users = [user for value in step.outputs for user in judge.pairs.b.users.get(judge.pairs.b.root(value).number, ())]
    taking = next((user for user in users if not user.transparent), step)
    return ElementOrder("wiring", taking, f"{taking.op} is given the parts of a value in another order")


def _cut_alike(run: StepList, step: Step) -> list[Step]:
    """Return the steps of a call that take parts of the value that a step takes one of."""
    if not step.data:
        return []
    root = run.root(step.data[0].value).number
    parts = [s for s in run.by_call.get(step.call.index, ()) if s.name == step.name and s.data]
    return [s for s in parts if run.root(s.data[0].value).number == root]


def constants_changed(judge: Judge, result: StepResult) -> ElementOrder | None:
    """Return a step on the way to this one whose constants differ from its counterpart's.

    Only steps that are paired by path, that select by rank, or that pad, are compared: where it pads, no statistics
    show.
    """
    for step, partner, matched_by in _steps_before(judge, result):
        same = step.name == partner.name and (
            matched_by in ("path", "mapping") or step.name in BY_RANK or step.name == "pad"
        )
        if not same or (step.name in TRANSPARENT and step.name not in REORDERING_VIEWS):
            continue
        gone, new = differing_settings(partner, step)
        if gone and new:
            return ElementOrder("constant", step, f"{listed(gone)} in a, {listed(new)} in b")
    return None


def moves_changed(judge: Judge, cause: Cause, result: StepResult) -> ElementOrder | None:
    """Return the last step that shifts or flips elements in another way than a's, or that a has and b lacks.

    Statistics do not show where elements are, so such a step may be far before the one that shows it.
    """
    pairs = judge.pairs
    in_a = _moves_before(pairs.a, (result.partner, cause.a))
    in_b = _moves_before(pairs.b, (result.step, cause.b))
    for one, other in zip(in_a, in_b):
        if (one.name, _amount(one)) != (other.name, _amount(other)):
            texts = [f"{side.op}({', '.join(as_written(*side.constants))})" for side in (one, other)]
            return ElementOrder("constant", other, f"{texts[0]} in a, {texts[1]} in b")
    counts = [sum(step.name in MOVES and not step.transparent for step in run.steps) for run in (pairs.a, pairs.b)]
    if len(in_b) > len(in_a) and counts[1] > counts[0]:
        step = in_b[len(in_a)]
        return ElementOrder(
            "extra", step, f"{step.op}({', '.join(as_written(*step.constants))}) has no counterpart in a"
        )
    return None


def _rounded(judge: Judge, one: StepInput, other: StepInput) -> float:
    """Return the error up to which rounding explains that two values differ, from which steps chose."""
    return FEW_TIMES * judge.clean_for(one.value, other.value)


def choices_changed(judge: Judge, cause: Cause, result: StepResult) -> ElementOrder | None:
    """Return the selection by rank behind a cause that takes others than in a, because rounding decides near ties.

    What is computed for the elements that it takes differs in everything that follows, as for the experts of a token.
    """
    integers = [value for step in (cause.b, result.step) if step is not None for value in step.results]
    shows_it = cause.kind in ("values", "shape", "wiring") or any(value.dtype not in EPS for value in integers)
    if cause.kind in ("constant", "weights", "dtype", "input", "raised", "random") or not shows_it:
        return None
    found: list[tuple[float, Step]] = []
    for step in _steps_upstream(judge.pairs.b, (result.step, cause.b)):
        other = judge.results.get(step.index) if step.name in BY_RANK else None
        if other is None or other.partner.name not in BY_RANK or other.error_in == 0.0 or other.adds:
            continue
        if other.worst_input is not None and other.error_in > _rounded(judge, *other.worst_input):
            continue
        sides = [(x, y) for x, y in zip(other.partner.results, step.results) if x.dtype not in EPS]
        shares = [judge.value_error(x, y) for x, y in sides]
        found += [(share, step) for share in shares if 0.0 < share <= FEW]
    if not found:
        return None
    share, first = found[-1]
    text = f"{share:.1%}".replace(".0%", "%")
    because = f"it takes others than in a for {text} or more: these are so close that rounding decides"
    return ElementOrder("values", first, because)


def picks_other_rows(judge: Judge, cause: Cause) -> bool:
    """Is it about indices that one side computes to pick rows and the other does not, or about rows in another order?

    Of the same rows, implementations may compute all, those that are needed, or these in another order.
    """
    if cause.kind not in ("missing", "extra", "values", "shape"):
        return False
    only = {"missing": (cause.a,), "extra": (cause.b,)}.get(cause.kind, (cause.a, cause.b))
    named = [step for step in only if step is not None]
    of_indices = bool(named) and all(
        step.name in INDEXING and all(value.dtype not in EPS for value in step.results) for step in named
    )
    sides = cause.value_a, cause.value_b
    if sides[0] is None or sides[1] is None:
        return of_indices and cause.measures.what == "shape"
    rows = [math.prod(value.shape[:-1]) for value in sides if value is not None and value.shape]
    widths = {value.shape[-1:] for value in sides if value is not None}
    other_rows = len(rows) == 2 and rows[0] != rows[1] and len(widths) == 1
    picks = of_indices or any(step is not None and step.name in PICKING for step in (cause.a, cause.b))
    sizes = of_indices and cause.measures.what == "shape"
    return sizes or (picks and (other_rows or judge.meter.is_reordered(sides[0], sides[1])))


def _moves_before(run: StepList, starts: Iterable[Step | None]) -> list[Step]:
    """Return the shifts and flips that some steps depend on, or are, the latest first."""
    return [step for step in _steps_upstream(run, starts) if step.name in MOVES and not step.transparent]


def _steps_upstream(run: StepList, starts: Iterable[Step | None]) -> Iterator[Step]:
    """Yield some steps and those that they depend on, the latest first."""
    pending = {step.index for step in starts if step is not None}
    visited = set(pending)
    while pending and len(visited) < FAR:
        step = run.steps[max(pending)]
        pending.discard(step.index)
        yield step
        makers = [run.makers.get(given.value.number) for given in step.data]
        new = {maker.index for maker in makers if maker is not None} - visited
        visited |= new
        pending |= new


def _amount(step: Step) -> str:
    """Return by how much a step shifts, or what it flips: its first constant. Dimensions depend on the layout."""
    return step.constants[0].rpartition("=")[2] if step.constants and step.name == "roll" else ""


def arranging_step(judge: Judge, result: StepResult) -> ElementOrder | None:
    """Return the step that arranged an input of this step, if in a another operation made this input."""
    for one, other in result.inputs:
        sides = judge.pairs.a.maker(one.value), _maker(judge, other.value.number)
        if sides[0] is None or sides[1] is None or other.is_weight:
            continue
        if sides[1].name in SLICES and _is_a_part_of_a_product(judge, sides[1]):
            continue  # it has the elements of a's own product: these are in the order of the weights
        if sides[1].name in ARRANGING and (sides[0].name != sides[1].name or result.step.transparent):
            return ElementOrder("values", sides[1], "it has the elements of a's in another order")
    return None


def _is_a_part_of_a_product(judge: Judge, step: Step) -> bool:
    makers = [judge.pairs.b.maker(given.value) for given in step.data]
    return len(makers) == 1 and makers[0] is not None and bool(makers[0].weights)


def order_cause(judge: Judge, result: StepResult, change: ElementOrder) -> Cause:
    """Return a change of order as a cause."""
    step = change.step
    value = step.results[0] if step.results else None
    partner = judge.pairs.step_in_a(step)
    return make_cause(
        judge, change.kind, step.call, step.op, change.because, result, step=step, partner=partner, b=value
    )


def _maker(judge: Judge, number: int) -> Step | None:
    run = judge.pairs.b
    return run.maker(run.values[number])


def _steps_before(judge: Judge, result: StepResult) -> Iterator[tuple[Step, Step, str]]:
    """Yield the steps that a step depends on, latest first, back to values that are equal by data.

    Each comes with its counterpart and with how the two were matched.
    """
    run, pairs = judge.pairs.b, judge.pairs
    pending, visited = {result.step.index}, {result.step.index}
    while pending and len(visited) < FAR:
        step = run.steps[max(pending)]
        pending.discard(step.index)
        pair = pairs.steps.get(step.index)
        if pair is not None and step is not result.step:
            yield step, pairs.a.steps[pair.a], pair.matched_by
        for given in step.inputs:
            partner = pairs.value_in_a(given.value)
            measures = None if partner is None else judge.meter(partner, given.value)
            limit = judge.clean if partner is None else judge.clean_for(partner, given.value)
            known = measures is not None and measures.basis == "tensors" and measures.error <= limit
            maker = run.makers.get(given.value.number)
            if not known and maker is not None and maker.index not in visited:
                visited.add(maker.index)
                pending.add(maker.index)
