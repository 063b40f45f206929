"""Compare what two models return, slot by slot, and name the causes that no step shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from fxdebug.comparison.diagnosis.cause import BOTH_DREW, UNPAIRED, Cause, make_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, comparable, draws_random
from fxdebug.comparison.diagnosis.narrowing_cast import narrowing_cast
from fxdebug.comparison.diagnosis.region_causes import RegionDiagnosis
from fxdebug.comparison.measures import STATISTICS, Measures
from fxdebug.comparison.pairing.returned_values import facing_outputs, is_made_after_forward, returned_by
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step
from fxdebug.comparison.thresholds import FEW_TIMES, GROWTH, NARROW_ROUNDING_STEPS, NEAR
from fxdebug.comparison.tolerance import rounding_step, tolerance_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Value, numbers, shape_text
from fxdebug.operators.dtypes import EPS


class OutputDiagnosis:
    """Name the causes that show in the outputs of the two models."""

    def __init__(self, judge: Judge, regions: RegionDiagnosis) -> None:
        self._judge = judge
        self._pairs = judge.pairs
        self._regions = regions
        one, other = self._pairs.a.trace, self._pairs.b.trace
        self._a, self._b = returned_by(one.root), returned_by(other.root)
        is_one_model = one.model == other.model and _modules(one) == _modules(other)
        self._is_one_model = is_one_model and _plain_inputs(one) == _plain_inputs(other)

    def causes(self) -> Iterator[Cause]:
        """Yield the causes in the outputs: another value or shape, a missing or an extra output."""
        if self._a is None or self._b is None or not self._pairs.b.steps:
            return
        yield from self._not_returned()
        for side in facing_outputs(self._a, self._b, self._pairs).sides:
            if self._is_one_model and side.slot_a != side.slot and self._is_elsewhere(side.slot, side.b):
                because = f"what is returned as {side.slot_a} in a is returned as {side.slot} in b"
                yield self._root_cause("wiring", because, side.a, side.b, Measures(math.inf, what="shape"))
            cause = self._cause(side.a, side.b)
            if cause is not None:
                yield replace(cause, absorbable=False)

    def _is_elsewhere(self, slot: str, b: Value) -> bool:
        """Is something of another shape in the slot of a in which b has this value?"""
        one = {} if self._a is None else dict(self._a.named())
        return slot in one and one[slot].shape != b.shape

    def _not_returned(self) -> Iterator[Cause]:
        """Yield the outputs that only one side has; another implementation may return fewer or more, but not none."""
        assert self._a is not None and self._b is not None
        a, b = dict(self._a.named()), dict(self._b.named())
        if not self._is_one_model and (b or not a):
            return
        kind: Literal["missing", "extra"]
        for kind, values, others, where in (("missing", a, b, "a and not in b"), ("extra", b, a, "b and not in a")):
            gone = [slot or "a tensor" for slot in values if slot not in others]
            if gone:
                because = f"{', '.join(gone[:3])}{', …' if len(gone) > 3 else ''} is returned in {where}"
                value = next(value for slot, value in values.items() if slot not in others)
                yield self._root_cause(kind, because, value, value, Measures(math.inf, what=kind))

    def _cause(self, one: Value, other: Value) -> Cause | None:
        if self._are_of_samples(one, other):
            return None
        if self._is_one_model and one.shape != other.shape and not self._judge.meter.face_in_parts(one, other):
            because = f"{shape_text(one.shape)} is returned in a, {shape_text(other.shape)} in b"
            return self._root_cause("shape", because, one, other, Measures(math.inf, what="shape"))
        if not comparable(one, other):
            return None
        measures = self._judge.meter(one, other)
        tolerance = self._judge.meter.tolerance(one, other)
        if measures.what == "unknown" or measures.error <= max(tolerance, self._judge.clean_for(one, other)):
            return None
        afterwards = self._changed_after_forward(one, other)
        if afterwards is not None:
            return self._root_cause("values", afterwards, one, other, measures)
        if self._pairs.are_paired(one, other):
            before = self._judge.results.get(self._maker(other).index)
            if before is None or measures.basis == STATISTICS or measures.what:
                return None
            if measures.error <= FEW_TIMES * before.error or (
                before.exceeds_tolerance and before.measures.basis == STATISTICS
            ):
                return None  # statistics are a lower bound: the viewed value may differ as much
            cast = narrowing_cast(self._pairs, one, other)
            if cast is not None:
                step, because = cast
                result = self._root_result(one, other, measures)
                return make_cause(self._judge, "dtype", step.call, step.op, because, result, step=step)
            return self._root_cause(
                "values", "its elements stand in other places than they do in a", one, other, measures
            )
        if other.number not in self._pairs.b.makers and one.number not in self._pairs.a.makers:
            if other.name is not None or other.number in {value.number for value in self._pairs.b.trace.root.inputs}:
                return None  # a weight or an input: it is a finding as such
            because = "no operation made it on either side, and it is another one"
            return self._root_cause("values", because, one, other, measures)
        return self._regions.explain(self._root_result(one, other, measures), one, other)

    def _are_of_samples(self, one: Value, other: Value) -> bool:
        """Has a result one row for each sample of a pack, where the runs have as many rows of tokens?"""
        facing = self._judge.meter.facing
        if facing is None or facing.batch[0] != facing.batch[1] or one.shape[:1] == other.shape[:1]:
            return False
        return bool(one.shape) and one.shape[1:] == other.shape[1:] and facing.batch[0] == 1

    def cause_of(self, one: Value, other: Value, measures: Measures) -> Cause | None:
        """Return the cause of a value of b that stands in the place of one of a, by the steps that lead to them."""
        result = self._root_result(one, other, measures)
        return self._regions.explain(replace(result, at=result.step.index), one, other, through=True)

    def _changed_after_forward(self, one: Value, other: Value) -> str | None:
        """Say what changed a result of forward afterwards, if what the forwards returned is equal."""
        runs = (self._pairs.a, one), (self._pairs.b, other)
        changed = [is_made_after_forward(run, value) for run, value in runs]
        a, b = self._pairs.a.trace.root.outputs, self._pairs.b.trace.root.outputs
        if not any(changed) or not a or not b:
            return None
        sides = [(x, y) for _, _, x, y in facing_outputs(a, b, self._pairs).sides if comparable(x, y)]
        if not sides or not all(self._judge.agree(x, y) for x, y in sides):
            return None  # inherited from there
        where = " and ".join(name for name, is_changed in zip("ab", changed) if is_changed)
        return f"the forwards return the same; a hook or a method of the class changes it afterwards in {where}"

    def _maker(self, value: Value) -> Step:
        """Return the step of b that made a value, behind all views; the last one where none did."""
        return self._pairs.b.maker(value) or self._pairs.b.steps[-1]

    def _root_result(self, one: Value, other: Value, measures: Measures) -> StepResult:
        steps, tolerance = self._pairs.b.steps, self._judge.meter.tolerance(one, other)
        step = self._pairs.b.makers.get(other.number) or steps[-1]
        partner = self._pairs.a.makers.get(one.number) or step
        return StepResult(step, partner, one, other, measures, 0.0, tolerance, True, at=len(steps))

    def _root_cause(self, kind: Kind, because: str, one: Value, other: Value, measures: Measures) -> Cause:
        """Return a cause that names an output of the root instead of an operation."""
        result = self._root_result(one, other, measures)
        cause = make_cause(self._judge, kind, self._pairs.b.trace.root, None, because, result, absorbable=False)
        return replace(cause, measures=measures, a=None, b=None)

    def differ_in_narrow_dtype(self) -> bool:
        """Do the outputs differ beyond tolerance, where all runs compute in one narrow dtype?

        There the statistics of inner values may hide a difference that the outputs show.
        """
        a, b, judge = self._a, self._b, self._judge
        if a is None or b is None or judge.narrow is not None:
            return False
        sides = [(x, y) for _, _, x, y in facing_outputs(a, b, self._pairs).sides if x.dtype in EPS]
        known = [(x, y) for x, y in sides if comparable(x, y) and judge.narrow_eps(x, y)]
        return not all(judge.agree(x, y) for x, y in known)

    def number_causes(self) -> Iterator[Cause]:
        """Yield the first number or text, returned beside tensors, that differs."""
        if self._a is None or self._b is None or not self._pairs.b.steps:
            return
        for slot, one, other in differing_numbers(self._judge):
            value = next(iter(self._pairs.b.steps[-1].results), None) or self._pairs.b.trace.values[0]
            because = f"{one!r} is returned in a, {other!r} in b" + (f" ({slot})" if slot else "")
            yield self._root_cause(
                "values", because, value, value, Measures(_relative_difference(one, other), what="number")
            )
            return

    def unexplained_causes(self) -> Iterator[Cause]:
        """Yield the first step far from its partner, where the outputs differ and no pair of steps says why."""
        a, b = self._a, self._b
        narrow, limit = self._judge.narrow, unexplained_limit(self._judge)
        sides = facing_outputs(a, b, self._pairs).sides if a is not None and b is not None else []
        far = [(x, y) for _, _, x, y in sides if comparable(x, y) and x.dtype in EPS]
        if not any(_is_far(self._judge, x, y, limit) for x, y in far):
            return
        limit = limit if narrow is None else limit / 2  # the outputs show that it is more than rounding
        results = self._judge.results.values()
        differing = [result for result in results if _is_far(self._judge, result.a, result.b, limit)]
        measured = [result for result in differing if result.error_in < math.inf] if narrow is not None else []
        for first in (measured or differing)[:1]:
            if draws_random(first.step) and draws_random(first.partner):  # into memory that was never written
                yield make_cause(self._judge, "random", first.step.call, first.step.op, BOTH_DREW, first)
                return
            held = self._carried(first) or self._held(first)
            because = held or f"what it was given differs already{UNPAIRED}"
            cause = make_cause(self._judge, "values", first.step.call, first.step.op, because, first, absorbable=False)
            yield cause if held else replace(cause, confidence=0.3)

    def _carried(self, result: StepResult) -> str:
        """Say that a step of b depends on a buffer that the run a has left, and that was another one before it."""
        run = self._pairs.b
        before, now = ({p.name: p for p in each.trace.parameters} for each in (self._pairs.a, run))
        pending, seen = [given.value for given in result.step.inputs], set[int]()
        while pending and len(seen) < NEAR:
            value = run.root(pending.pop())
            one, other = before.get(value.name or ""), now.get(value.name or "")
            if one is None or other is None or other.kind != "buffer" or other.before is None:
                pass
            elif one.changed and one.before != one.stats == other.before:
                return f"b begins with {other.name} as a has left it, and a with another one"
            maker = run.makers.get(value.number)
            if value.number not in seen and maker is not None:
                pending += [given.value for given in maker.inputs]
            seen.add(value.number)
        return ""

    def _held(self, result: StepResult) -> str:
        """Say that a step is given a tensor that was there before the run, as state that an earlier call left."""
        pairs, judge = self._pairs, self._judge
        kept = {
            side: [
                each.value
                for each in step.data
                if run.maker(each.value) is None and not run.is_input(each.value) and run.root(each.value).name is None
            ]
            for side, run, step in (("a", pairs.a, result.partner), ("b", pairs.b, result.step))
        }
        one, other = kept["a"], kept["b"]
        if len(one) == len(other) and not any(
            _is_far(judge, x, y, judge.clean) for x, y in zip(one, other) if comparable(x, y)
        ):
            return ""
        if len(one) == len(other):
            call = result.step.call
            what = HELD if call.origin != "unregistered" else f"a weight of {call.path}, {UNREGISTERED}"
            return f"it is given {what}; it is another one in a"
        side, rest = ("b", "a") if len(other) > len(one) else ("a", "b")
        return f"in {side} it is given {HELD}, in {rest} it is not"


UNREGISTERED = "which no module registers (a plain list or dict: state_dict() leaves it out)"
HELD = "a tensor that no operation here made, no input and no weight (state of an earlier call, or numbers of numpy?)"


def _is_far(judge: Judge, a: Value, b: Value, limit: float) -> bool:
    """Are two values further apart than ``limit`` and than casts to a narrower dtype explain?"""
    measures = judge.meter(a, b)
    casts = GROWTH * judge.casting_tolerance(a, b) / NARROW_ROUNDING_STEPS
    return measures.what != "unknown" and measures.error > max(limit, casts)


def unexplained_limit(judge: Judge) -> float:
    """Return the error of an output that rounding does not add up to in a healthy model."""
    if judge.narrow is None and judge.clean > tolerance_of("float32"):
        return GROWTH * judge.clean / NARROW_ROUNDING_STEPS
    return GROWTH * (judge.clean if judge.narrow is None else min(judge.clean, rounding_step(judge.narrow)))


def differing_numbers(judge: Judge) -> Iterator[tuple[str, float | str, float | str]]:
    """Yield numbers and texts that both models return in one slot and that differ by more than rounding."""
    a, b = (returned_by(run.trace.root) for run in (judge.pairs.a, judge.pairs.b))
    if a is None or b is None:
        return
    others = numbers(b.item)
    limit = GROWTH * judge.clean
    for slot, one in numbers(a.item).items():
        if slot in others and _relative_difference(one, others[slot]) > limit:
            yield slot, one, others[slot]


def _relative_difference(one: float | str, other: float | str) -> float:
    """Return the difference of two fractions relative to the larger one; infinity for anything else that differs."""
    if one == other or (one != one and other != other):
        return 0.0
    if type(one) is not float or type(other) is not float or not math.isfinite(one - other):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def _modules(trace: TraceData) -> object:
    """Return the modules of a model; those that were called, where the trace has no list of modules."""
    return trace.modules or {call.path for call in trace.calls}


def _plain_inputs(trace: TraceData) -> dict[str, float | str]:
    """Return the numbers and texts that a model was given: ``use_cache=False`` asks it for less."""
    given = trace.root.inputs
    named = Group("mapping", "dict", tuple(given.kwargs.values()), tuple(given.kwargs))
    return numbers(Group("sequence", "tuple", (*given.args, named)))
