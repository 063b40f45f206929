"""Who is to blame for a step that differs: itself, the weights it uses, or whoever handed it the wrong value."""

from __future__ import annotations

from fxdebug.comparison.diagnosis.element_order import accused, arranger, crossed, first_inexact, resettled
from fxdebug.comparison.diagnosis.finding import Cause, blame, differ, listed, other_settings
from fxdebug.comparison.diagnosis.judge import Judge, StepResult, comparable, draws
from fxdebug.comparison.diagnosis.region import chain
from fxdebug.comparison.diagnosis.region_causes import RegionDiagnosis
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.tolerance import error_between, visible
from fxdebug.data.values import Value, shape_text
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    BY_RANK,
    COMMUTATIVE,
    COPYING,
    REORDERING_VIEWS,
    SLICES,
    SUMS,
    canonical,
    family,
    role,
)


class Diagnoser:
    """Turns judged steps into findings. Asks only about what the first differing value depends on."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._pairs = judge.pairs
        self._told: set[object] = set()
        self.between = RegionDiagnosis(judge, self._told)

    def of(self, judged: StepResult) -> Cause | None:
        """The finding behind a step that is beyond tolerance; ``None`` where the error was inherited."""
        cast = self._cast(judged) if self._judge.same_dtypes else None
        if cast is not None:
            return cast
        if not judged.bad:
            return None
        if family(judged.partner.name) != family(judged.step.name):
            return self.between.ask(judged, judged.a, judged.b, through=True)
        if judged.adds:
            return self._itself(judged)
        if judged.worst is None or judged.error_in <= self._limit(*judged.worst):
            return None
        one, other = judged.worst
        if self._pairs.are(one.value, other.value):
            return self._on_the_way(judged, one, other)
        if judged.step.name in SUMS and self._judge.meter(one.value, other.value).what == "shape":
            odd = self.between.among_peers(judged)  # which of what is added belongs to which is not known
            if odd is not None:
                return odd
        return self.between.ask(judged, one.value, other.value)

    def _limit(self, one: StepInput, other: StepInput) -> float:
        return self._judge.meter.tolerance(one.value, other.value)

    # Another dtype -------------------------------------------------------------------------------

    def _cast(self, judged: StepResult) -> Cause | None:
        """The first to leave the dtype of a, where weights and inputs have the same on both sides."""
        facing = judged.sides or tuple(zip(judged.partner.data, judged.step.data))
        sides = [side for side in facing if {side[0].value.dtype, side[1].value.dtype} <= EPS.keys()]
        for one, other in sides:
            if one.value.dtype == other.value.dtype or not self._pairs.are(one.value, other.value):
                continue
            roots = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
            if roots[0].dtype != roots[1].dtype:
                return None  # inherited from there
            for step in chain(self._pairs.b, other.value):
                if step.outputs[0].dtype != roots[1].dtype:
                    return self._recast(judged, step, roots[1].dtype, step.outputs[0].dtype)
        same = all(one.value.dtype == other.value.dtype for one, other in sides)
        if same and judged.a.dtype != judged.b.dtype and {judged.a.dtype, judged.b.dtype} <= EPS.keys():
            return self._recast(judged, judged.step, judged.a.dtype, judged.b.dtype)
        return None

    def _recast(self, judged: StepResult, step: Step, a: str, b: str) -> Cause | None:
        if (step.index, "dtype") in self._told:
            return None
        self._told.add((step.index, "dtype"))
        because = f"{a} in a, {b} in b"
        return blame(
            self._judge, "dtype", step.call, step.op, because, judged, step=step, b=step.results[0], a=judged.a
        )

    # The step itself -----------------------------------------------------------------------------

    def _itself(self, judged: StepResult) -> Cause:
        step, partner = judged.step, judged.partner
        kind: Kind = "values"
        because = "the same inputs give other values"
        gone, new = other_settings(partner, step)
        if judged.weights is not None:
            one, other = judged.weights
            names = other.value.name or other.argument
            kind, because = "weights", f"{names} differs from {one.value.name or 'that of a'}"
        elif judged.measures.what == "shape":
            kind = "shape"
            because = f"{shape_text(judged.a.shape)} in a, {shape_text(judged.b.shape)} in b"
        elif draws(step):
            kind, because = "random", "random numbers were drawn: seed both runs alike"
        elif (masked := self._mask(judged)) is not None:
            return masked
        elif not self._by_path(judged) and (found := crossed(self._judge, judged)) is not None:
            return accused(self._judge, judged, found)
        elif (gone or new) and canonical(step.op) in (canonical(partner.op), partner.name):
            kind = "constant"
            because = f"{listed(gone) or 'nothing'} in a, {listed(new) or 'nothing'} in b"
        elif judged.measures.what == "nonfinite":
            kind, because = "nonfinite", "NaN or infinity on one side only"
        elif missing := self._unused(partner, step):
            kind, because = "missing", missing
        elif (turned := self._arranged(judged)) is not None:
            return turned
        elif partner.name != step.name:
            because = f"{partner.name} in a, {step.name} in b"
        return blame(self._judge, kind, step.call, step.op, because, judged, absorbable=not judged.weights)

    def _arranged(self, judged: StepResult) -> Cause | None:
        """What put the elements into another order, the surest signs first."""
        for ask in (crossed, resettled):
            if judged.partner.name == judged.step.name and (found := ask(self._judge, judged)) is not None:
                return accused(self._judge, judged, found)
        turned = self._rearranged(judged)
        if turned is not None:
            return turned
        for ask in (first_inexact, arranger):
            if judged.partner.name == judged.step.name and (found := ask(self._judge, judged)) is not None:
                return accused(self._judge, judged, found)
        return None

    def _mask(self, judged: StepResult) -> Cause | None:
        """A mask that it is given lets through another share, whatever the two are made of."""
        for one, other in judged.sides:
            ours, theirs = visible(one.value), visible(other.value)
            if ours is None or theirs is None or min(abs(theirs - ours), abs(theirs - (1 - ours))) <= 1e-6:
                continue
            maker = self._pairs.b.made.get(self._pairs.b.root(other.value).number)
            if maker is not None:
                because = f"the mask lets {ours:.0%} through in a, {theirs:.0%} in b"
                return blame(
                    self._judge, "values", maker.call, maker.op, because, judged, step=maker, a=one.value, b=other.value
                )
        return None

    def _unused(self, partner: Step, step: Step) -> str:
        """A weight that only one of the two uses (a bias that was left out)."""
        if len(partner.weights) > len(step.weights):
            spare = [given.value.name or given.argument for given in partner.weights[len(step.weights) :]]
            return f"{listed(spare)} is used in a only"
        if len(partner.data) > len(step.data):
            return f"{listed(given.argument for given in partner.data[len(step.data) :])} is given in a only"
        return ""

    def _rearranged(self, judged: StepResult) -> Cause | None:
        """Statistics do not see the order of elements: what arranges them on the way to the step is the cause.

        Only asked where the operation, its constants and its weights are the same and nothing else is left.
        """
        for one, other in judged.sides:
            measures = self._judge.meter(one.value, other.value)
            if other.weight or (measures.basis == "tensors" and measures.error <= self._judge.clean):
                continue
            ways = self._way(self._pairs.a, one.value), self._way(self._pairs.b, other.value)
            roots = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
            found = None
            copied = any(step.name in COPYING for way in ways for step in way)
            if self._by_path(judged) or copied or roots[0].shape == roots[1].shape:
                found = self._other_way(judged, *ways)
            found = found or self._crossed(judged, *roots)
            if found is not None:
                return found
            if judged.step.name in SLICES | BY_RANK and not judged.step.data[1:] and measures.basis != "tensors":
                return self._shuffled(judged, other.value)
        return None

    def _shuffled(self, judged: StepResult, value: Value) -> Cause | None:
        """Whole, it has the elements of a's; what is picked has others: they are in another order, since when?"""
        maker = step = self._pairs.b.made.get(self._pairs.b.root(value).number)
        while step is not None and not step.weights and len(step.data) == 1:
            step = self._pairs.b.made.get(self._pairs.b.root(step.data[0].value).number)
        maker = step if step is not None and step.weights else maker
        if maker is None:
            return None
        because = f"the elements are in another order than in a: {judged.step.op} takes others"
        return blame(self._judge, "values", maker.call, maker.op, because, judged, step=maker, b=value)

    def _other_way(self, judged: StepResult, a: list[Step], b: list[Step]) -> Cause | None:
        """Views of another kind."""
        by_path = self._by_path(judged)
        # in another implementation a view and a reshape are one; a transposition more or less is not
        ways = [[step for step in way if by_path or step.name in REORDERING_VIEWS] for way in (a, b)]
        seen = [[(step.name, step.constants) if by_path else step.name for step in way] for way in ways]
        if seen[0] == seen[1] or not b:
            return None
        place = next((i for i, (x, y) in enumerate(zip(*seen)) if x != y), min(map(len, seen)))
        step = (ways[1] or b)[min(place, len(ways[1] or b) - 1)]
        told = [" ".join(f"{s.op}({', '.join(s.constants)})" for s in way) or "nothing" for way in (a, b)]
        because = f"{told[0]} in a, {told[1]} in b"
        kind: Kind = "constant" if by_path else "values"
        return blame(self._judge, kind, step.call, step.op, because, judged, step=step)

    def _by_path(self, judged: StepResult) -> bool:
        found = self._pairs.steps.get(judged.step.index)
        return found is not None and found.how in ("path", "mapping")

    def _crossed(self, judged: StepResult, a: Value, b: Value, deep: int = 6) -> Cause | None:
        """What it was given was made of the same two values the other way round, some steps before."""
        one = self._pairs.a.made.get(self._pairs.a.root(a).number)
        other = self._pairs.b.made.get(self._pairs.b.root(b).number)
        if one is None or other is None or not one.data or not other.data or not deep:
            return None
        left, right = one.data, other.data
        ordered = len(left) == len(right) == 2 and one.name not in COMMUTATIVE
        if ordered and family(one.name) == family(other.name):
            crossed = all(self._pairs.are(x.value, y.value) for x, y in zip(left, right[::-1]))
            crossed = crossed and not self._pairs.are(left[0].value, right[0].value)
            if crossed:
                because = f"{other.op} is given the same two values the other way round"
                return blame(self._judge, "wiring", other.call, other.op, because, judged, step=other, partner=one)
        if role(one.name) in ("mul", "add") or role(other.name) in ("mul", "add"):
            here = left[0].value if role(one.name) in ("mul", "add") else a
            there = right[0].value if role(other.name) in ("mul", "add") else b
            return self._crossed(judged, here, there, deep - 1)
        return None

    def _way(self, run: StepList, value: Value) -> list[Step]:
        """The views between a value and what computed it, and what only copies (repeat against expand, cat)."""
        steps = chain(run, value)
        for _ in range(4):
            maker = run.made.get(run.root(value).number)
            if maker is None or maker.name not in COPYING or not maker.data:
                break
            value = max((given.value for given in maker.data), key=lambda v: v.numel)
            steps = [*chain(run, value), maker, *steps]
        return steps

    # What it was handed --------------------------------------------------------------------------

    def _on_the_way(self, judged: StepResult, one: StepInput, other: StepInput) -> Cause | None:
        """Both sides hand on the same value, but not as it was: a cast or a view between changed it."""
        root_a, root_b = self._pairs.a.root(one.value), self._pairs.b.root(other.value)
        if differ(self._judge, root_a, root_b):
            return None
        for step in chain(self._pairs.b, other.value):
            made = step.outputs[0]
            if self._pairs.of_step(step) is not None or not comparable(root_a, made):
                continue
            error = error_between(root_a.stats, made.stats)
            if error is None or error <= self._judge.meter.tolerance(root_a, root_b):
                continue
            changed = made.dtype != root_b.dtype
            because = f"{root_b.dtype} becomes {made.dtype}" if changed else "the elements are not what they were"
            return blame(self._judge, "dtype" if changed else "values", step.call, step.op, because, judged, step=step)
        # in two dtypes statistics tell too little
        moved = self._judge.same_dtypes or self._judge.meter.in_another_order(one.value, other.value)
        return self._rearranged(judged) if moved else None
