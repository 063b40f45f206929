"""Where elements came to stand in another order, which statistics do not see: asked when a step shows it later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fxdebug.comparison.diagnosis.finding import Cause, blame, listed, other_settings
from fxdebug.comparison.diagnosis.judge import Judge, StepResult
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import BY_RANK, COMMUTATIVE, COPYING, REORDERING, REORDERING_VIEWS, SLICES, TRANSPARENT

FARTHEST = 300  # steps that are looked at
ARRANGING = COPYING | REORDERING | SLICES


class ElementOrder(NamedTuple):
    """The step that is to blame, and for what."""

    kind: Kind
    step: Step
    because: str


def crossed(judge: Judge, judged: StepResult) -> ElementOrder | None:
    """A step on the way to this one that is given the same values in another order."""
    for step, partner, _ in _before(judge, judged):
        if step.name != partner.name or step.name in COMMUTATIVE or step.transparent:
            continue
        one, other = ([judge.pairs.a.root(g.value).number for g in partner.data], [g.value for g in step.data])
        found = [judge.pairs.of_value(value) for value in other]
        numbers = [None if value is None else value.number for value in found]
        if len(set(one)) > 1 and numbers != one and sorted(map(str, numbers)) == sorted(map(str, one)):
            return ElementOrder("wiring", step, f"{step.op} is given the same values in another order")
    return None


def resettled(judge: Judge, judged: StepResult) -> ElementOrder | None:
    """A step on the way to this one that has other constants: in the same place of the same code, or one that picks."""
    for step, partner, how in _before(judge, judged):
        same = step.name == partner.name and (how in ("path", "mapping") or step.name in BY_RANK)
        if not same or (step.name in TRANSPARENT and step.name not in REORDERING_VIEWS):
            continue
        gone, new = other_settings(partner, step)
        if gone and new:
            return ElementOrder("constant", step, f"{listed(gone)} in a, {listed(new)} in b")
    return None


def first_inexact(judge: Judge, judged: StepResult) -> ElementOrder | None:
    """The first step that does not give exactly what it gives in a although all that it is given is exactly that.

    Sums of the same elements in another order are rounded otherwise: statistics of copies that run the same code
    are equal to the last digit until then.
    """
    found: ElementOrder | None = None
    for step, partner, how in _before(judge, judged):
        if how not in ("path", "mapping") or step.name != partner.name or step.transparent:
            continue
        made = [(x, y) for x, y in zip(partner.results, step.results) if x.dtype in EPS]
        exact = all(judge.between(x, y) == 0.0 for x, y in zip(partner.inputs, step.inputs))
        if exact and made and any(judge.meter(x, y).error > 0.0 for x, y in made):
            found = ElementOrder("values", step, "it has the elements of a's in another order")
    return found


def arranger(judge: Judge, judged: StepResult) -> ElementOrder | None:
    """What put together the value that this step is given, where in a another operation made it."""
    for one, other in judged.sides:
        sides = judge.pairs.a.made.get(judge.pairs.a.root(one.value).number), _maker(judge, other.value.number)
        if sides[0] is None or sides[1] is None or other.weight:
            continue
        if sides[1].name in ARRANGING and (sides[0].name != sides[1].name or judged.step.transparent):
            return ElementOrder("values", sides[1], "it has the elements of a's in another order")
    return None


def accused(judge: Judge, judged: StepResult, found: ElementOrder) -> Cause:
    """The finding."""
    step = found.step
    value = step.results[0] if step.results else None
    partner = judge.pairs.of_step(step)
    return blame(judge, found.kind, step.call, step.op, found.because, judged, step=step, partner=partner, b=value)


def _maker(judge: Judge, number: int) -> Step | None:
    run = judge.pairs.b
    return run.made.get(run.root(run.values[number]).number)


def _before(judge: Judge, judged: StepResult) -> Iterator[tuple[Step, Step, str]]:
    """The steps that a step depends on, latest first, with their counterparts, back to what is surely equal."""
    run, pairs = judge.pairs.b, judge.pairs
    pending, seen = {judged.step.index}, {judged.step.index}
    while pending and len(seen) < FARTHEST:
        step = run.steps[max(pending)]
        pending.discard(step.index)
        found = pairs.steps.get(step.index)
        if found is not None and step is not judged.step:
            yield step, pairs.a.steps[found.a], found.how
        for given in step.inputs:
            partner = pairs.of_value(given.value)
            measures = None if partner is None else judge.meter(partner, given.value)
            known = measures is not None and measures.basis == "tensors" and measures.error <= judge.clean
            maker = run.made.get(given.value.number)
            if not known and maker is not None and maker.index not in seen:
                seen.add(maker.index)
                pending.add(maker.index)
