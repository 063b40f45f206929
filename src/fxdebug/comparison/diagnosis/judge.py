"""Which steps add error: what comes out is further apart than what went in and rounding explain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fxdebug.comparison.measures import Measures, Meter
from fxdebug.comparison.pairing.by_dataflow import facing
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.rounding import copied, enlarged, half_step, narrower, rounded
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.tolerance import distinctive, eps_of, error_between, masked, size_of, spread, tolerance_of
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import LOOKUPS, NORMS, RANDOM, SLICES, SUMS, UNINITIALISED, family, normalized_constants
from fxdebug.query import network

# How much one operation may enlarge an error that it was given before it is suspected: normalisation of rows with
# outliers and softmax of large scores enlarge rounding 10 to 20 times in healthy models.
GROWTH = 30.0
DEEPEST = 8  # steps that are looked back for data
FARTHEST = 24  # values that are looked back for how large errors are
SHARP_EPS = 16  # rounding steps that the same operation may be off on bit-equal inputs (another kernel, other threads)
FEW, NARROW_FEW = 0.02, 0.1  # share of integers that may differ where the scores behind them do not agree exactly


@dataclass(frozen=True)
class StepResult:
    """A step of b beside its counterpart: what came out, what went in, and what that makes it."""

    step: Step
    partner: Step
    a: Value
    b: Value
    measures: Measures
    error_in: float
    tolerance: float
    adds: bool
    worst: tuple[StepInput, StepInput] | None = None  # the inputs that are furthest apart
    weights: tuple[StepInput, StepInput] | None = None  # the weights that differ
    sides: tuple[tuple[StepInput, StepInput], ...] = ()  # what went in, side by side
    at: int | None = None  # where in b's order, if not at its step

    @property
    def position(self) -> int:
        """Where in the execution order of b it shows."""
        return self.step.index if self.at is None else self.at

    @property
    def error(self) -> float:
        """How far apart what came out is."""
        return self.measures.error

    @property
    def bad(self) -> bool:
        """Is it beyond tolerance?"""
        return self.error > self.tolerance or self.adds


class Judge:
    """Judges the steps of b against those of a."""

    def __init__(self, pairs: Pairs, meter: Meter, tolerance: float | None = None) -> None:
        self.pairs, self.meter = pairs, meter
        self._given_tolerance = tolerance
        kinds = [_dtypes(run) for run in (pairs.a, pairs.b)]
        self.same_dtypes = kinds[0] == kinds[1]
        self.narrow = narrower(*kinds)  # what one run has in place of the other's dtype
        widest = [dtype for dtype in (*kinds[0], *kinds[1]) if dtype in EPS]
        self.clean = tolerance_of(*widest) if widest else tolerance_of("float32")  # what inputs may be off by
        narrow = eps_of(*widest) > EPS["float32"]
        self.few = NARROW_FEW if narrow else FEW
        if tolerance is not None:
            self.clean = max(self.clean, tolerance)
        self.judged: dict[int, StepResult] = {}

    def all(self) -> Iterator[StepResult]:
        """Every step of b that has a counterpart, in execution order."""
        for step in self.pairs.b.steps:
            judged = self.of(step)
            if judged is not None:
                self.judged[step.index] = judged
                yield judged

    def of(self, step: Step) -> StepResult | None:
        """One step; ``None`` where there is nothing to hold it against."""
        if step.name in UNINITIALISED:
            return None
        partner = self.pairs.of_step(step)
        if partner is not None:
            results = [(partner, *both) for both in _results(partner, step)]
        elif step.transparent:
            return None
        else:  # another operation makes what is paired with what this one makes
            found = [(self.pairs.of_value(value), value) for value in step.outputs]
            makers = [(self.pairs.a.made.get(a.number), a, b) for a, b in found if a is not None]
            results = [(maker, a, b) for maker, a, b in makers if maker is not None]
        measured = [(self.meter(a, b), maker, a, b) for maker, a, b in results if comparable(a, b)]
        measured = [found for found in measured if found[0].what != "unknown"]
        if not measured:
            return None
        measures, maker, a, b = max(measured, key=lambda found: found[0].error)
        return self._weigh(step, maker, measures, a, b)

    def bad(self, index: int | None) -> bool:
        """Is a step of b already known to add error, held against its own counterpart?"""
        judged = None if index is None else self.judged.get(index)
        return judged is not None and judged.adds and self.pairs.of_step(judged.step) is judged.partner

    def _weigh(self, step: Step, partner: Step, measures: Measures, a: Value, b: Value) -> StepResult:
        sides = facing(self.pairs, partner, step) if family(partner.name) == family(step.name) else []
        error_in, worst, weights, exact = 0.0, None, None, True
        for one, other in sides:
            error = self.between(one, other)
            if one.weight and other.weight:
                before = self._before(step, partner, one.value, other.value)
                error = error if before is None else before
            if one.weight and other.weight and self._others(one.value, other.value, error):
                weights = weights or (one, other)
            elif error > error_in:
                error_in, worst = error, (one, other)
            exact = exact and error == 0.0
        if measures.basis != "tensors" and masked(a.stats) and masked(b.stats) and error_in < math.inf:
            # of masked scores statistics tell the largest alone: they are no better than what they were made of
            measures = replace(measures, error=max(measures.error, error_in))
        tolerance = self.meter.tolerance(a, b)
        if not exact and self._given_tolerance is None:
            tolerance = max(tolerance, self.clean)  # float32 in a bfloat16 model carries what bfloat16 rounded
        if sides and exact and self._given_tolerance is None and a.dtype == b.dtype and partner.name == step.name:
            tolerance = self._sharp(step, partner, a, b, tolerance)
        if a.dtype not in EPS and measures.what != "shape":
            tolerance = 0.0 if exact or not any(given.value.dtype in EPS for given in step.inputs) else self.few
        carried = error_in
        if measures.basis == "tensors":  # what is known of the inputs by statistics alone may be far less than it is
            carried = max([error_in, *(self._carried(other.value, 0) for _, other in sides if not other.weight)])
        handed_on = self._handed_on(step, partner, sides, a, carried, measures.basis)
        if self._only_looked_up(step, partner):
            tolerance = min(tolerance, 2 * half_step(a.dtype, b.dtype))
        if step.name in SUMS:
            rounding, handed = self._cancelled(sides, a)
            tolerance, handed_on = max(tolerance, rounding), max(handed_on, handed)
        adds = measures.error > max(tolerance, handed_on)
        if not weights and error_in > max(self.clean, tolerance):
            adds = False
        return StepResult(step, partner, a, b, measures, error_in, tolerance, adds, worst, weights, tuple(sides))

    def _others(self, a: Value, b: Value, error: float) -> bool:
        """Do two weights hold other numbers? In another dtype they are as far apart as one rounding drives them."""
        if self._given_tolerance is not None or not half_step(a.dtype, b.dtype) or not distinctive(a):
            return error > self.meter.tolerance(a, b)
        kinds = a.dtype, b.dtype
        if a.stats is not None and b.stats is not None and not copied(a.stats, b.stats, kinds):
            return True
        return self.meter(a, b).basis == "tensors" and error > rounded(kinds)[0]

    def _before(self, step: Step, partner: Step, a: Value, b: Value) -> float | None:
        """The error of two weights as they were before the runs, where the steps write into them; else ``None``.

        A norm does so in training: what is seen of its statistics is as it left them.
        """
        sides = (self.pairs.a.trace, partner, a), (self.pairs.b.trace, step, b)
        if not any(side.node.id in network.network_of(trace).writers for trace, side, _ in sides):
            return None
        found = [next((p for p in trace.parameters if value.name in p.names), None) for trace, _, value in sides]
        if not any(parameter is not None and parameter.changed for parameter in found):
            return None
        one, other = (None if parameter is None else parameter.before for parameter in found)
        return error_between(one, other) or 0.0

    def _only_looked_up(self, step: Step, partner: Step) -> bool:
        """Is what came out, on both sides, some of the numbers of weights, which nothing was done to but rounding?"""
        if self.narrow is None or self._given_tolerance is not None:
            return False
        floats = [given for side in (partner, step) for given in side.inputs if given.value.dtype in EPS]
        alike = all(side.name in LOOKUPS | SLICES for side in (partner, step))
        return alike and bool(floats) and all(given.weight for given in floats)

    def _handed_on(
        self, step: Step, partner: Step, sides: list[tuple[StepInput, StepInput]], a: Value, carried: float, basis: str
    ) -> float:
        """What a step may make of the errors that it was given."""
        usual = GROWTH * carried * self._enlarged(step, sides)
        if self.narrow is None or family(partner.name) != family(step.name):
            return usual
        most = enlarged(step, sides, a)  # in a narrower dtype errors are large: one must know better
        if most is None:
            return usual
        before = [self._gathered(other.value) for _, other in sides if not other.weight]
        unsure = 1.0 if basis == "tensors" else 2.0  # of one element, the largest, not of all
        return min(usual, unsure * most * max([carried, eps_of(self.narrow) / 4, *before]))

    def _gathered(self, value: Value) -> float:
        """The largest error seen on the way to a value: what one looks like in statistics may be small by chance."""
        pending, seen, found = [value], set[int](), 0.0
        while pending and len(seen) < FARTHEST:
            at = pending.pop(0)
            root = self.pairs.b.root(at)
            if root.number in seen:
                continue
            seen.add(root.number)
            partner = self.pairs.of_value(at)
            if partner is not None and self.pairs.sure_of(at) and comparable(partner, at) and at.dtype in EPS:
                error = self.meter(partner, at).error
                found = max(found, error if math.isfinite(error) else 0.0)
            maker = self.pairs.b.made.get(root.number)
            pending += [] if maker is None else [given.value for given in maker.data]
        return found

    def _carried(self, value: Value, depth: int) -> float:
        """The error that a value of b surely has: its own, or that of what it was made of, where data tells more."""
        partner = self.pairs.of_value(value)
        if partner is not None and comparable(partner, value):
            measures = self.meter(partner, value)
            if measures.basis == "tensors":
                return measures.error if math.isfinite(measures.error) else 0.0
        maker = self.pairs.b.made.get(self.pairs.b.root(value).number)
        if maker is None or depth >= DEEPEST:
            return 0.0
        return max([0.0, *(self._carried(given.value, depth + 1) for given in maker.data)])

    def _enlarged(self, step: Step, sides: list[tuple[StepInput, StepInput]]) -> float:
        """How much more a norm enlarges errors: what it subtracts is larger than what it leaves."""
        if step.name not in NORMS or not sides or sides[0][0].value.stats is None:
            return 1.0
        stats = sides[0][0].value.stats
        return max(1.0, size_of(stats) / spread(stats)) if spread(stats) else 1.0

    def between(self, one: StepInput, other: StepInput) -> float:
        """The error of an input; 0.0 where the two cannot be compared (a mask of booleans and one of numbers)."""
        if not comparable(one.value, other.value):
            return 0.0
        measures = self.meter(one.value, other.value)
        return 0.0 if measures.what == "unknown" else measures.error

    def _sharp(self, step: Step, partner: Step, a: Value, b: Value, tolerance: float) -> float:
        """On bit-equal inputs a visible cause needs no large effect: another constant, other weights."""
        if normalized_constants(step.constants) != normalized_constants(partner.constants):
            return min(tolerance, 2 * eps_of(a.dtype, b.dtype))
        return min(tolerance, SHARP_EPS * eps_of(a.dtype, b.dtype)) if a.dtype == "float32" else tolerance

    def _cancelled(self, sides: list[tuple[StepInput, StepInput]], a: Value) -> tuple[float, float]:
        """What a sum may be off by: sums of large numbers may be small, and the errors of large ones large there.

        The error that rounding the operands makes, and the one that their own errors make, relative to the sum.
        """
        size = 0.0 if a.stats is None else size_of(a.stats)
        rounding = handed = 0.0
        for one, other in sides:
            operand = 0.0 if one.value.stats is None else size_of(one.value.stats)
            error = self.between(one, other)
            rounding += operand * max(EPS.get(one.value.dtype, 0.0), EPS.get(other.value.dtype, 0.0))
            handed += operand * error if math.isfinite(error) else 0.0
        if not size:
            return (math.inf if rounding else 0.0), handed
        return 4 * rounding / size, 4 * handed / size


def _results(a: Step, b: Step) -> list[tuple[Value, Value]]:
    """What came out, side by side; of two calls by the places in what they return."""
    if a.loose and b.loose and a.call.outputs is not None and b.call.outputs is not None:
        slots = {value.number: slot for slot, value in a.call.outputs.named()}
        other = dict(b.call.outputs.named())
        return [
            (value, other[slots[value.number]]) if slots.get(value.number) in other else (value, beside)
            for value, beside in zip(a.results, b.results)
        ]
    return list(zip(a.results, b.results))


def comparable(a: Value, b: Value) -> bool:
    """Can two values be held against each other? A mask of booleans and one of numbers cannot."""
    return (a.dtype in EPS) == (b.dtype in EPS)


def _dtypes(run: StepList) -> frozenset[str]:
    """The dtypes of a run's weights and inputs."""
    weights = {value.dtype for value in run.values.values() if value.name is not None}
    weights |= {parameter.dtype for parameter in run.trace.parameters}
    return frozenset(weights | {value.dtype for value in run.trace.root.inputs})


def draws(step: Step) -> bool:
    """Does it draw random numbers? Dropout does in training, where its result is not what it was given."""
    return step.name in RANDOM and bool(step.outputs)
