"""Judge which steps add error: their results are further apart than their inputs and rounding explain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fxdebug.comparison.diagnosis.error_growth import CarriedRounding, growth_limit
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.pairing.by_dataflow import facing_inputs
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.rounding import (
    agree_but_for_rounding,
    half_step,
    may_be_copies,
    narrower_dtype,
    rounding_limits,
)
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.thresholds import (
    EXACT_INPUT_STEPS,
    GROWTH,
    INTEGER_SHARE,
    NARROW_INTEGER_SHARE,
    NARROW_ROUNDING_STEPS,
    NEAR,
    VIEWS,
)
from fxdebug.comparison.tolerance import (
    eps_of,
    error_between,
    is_distinctive,
    is_masked,
    population_std,
    rms_of,
    rounding_step,
    tolerance_of,
    visible_share,
)
from fxdebug.data.values import Value
from fxdebug.operators.categories import DRAWS
from fxdebug.operators.dropped_values import dropped_by
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    ACTIVATIONS,
    LOOKUPS,
    NORMS,
    RANDOM,
    SLICES,
    SUMS,
    UNINITIALISED,
    family,
    normalized_constants,
)
from fxdebug.query import network

PASSING = ("call_module", "output")  # nodes that return what an operation in a call has made


@dataclass(frozen=True)
class StepResult:
    """A step of b beside its counterpart: their results, their inputs, and whether the step adds error."""

    step: Step
    partner: Step
    a: Value
    b: Value
    measures: Measures
    error_in: float
    tolerance: float
    adds: bool
    worst_input: tuple[StepInput, StepInput] | None = None  # the inputs with the largest error
    differing_weights: tuple[StepInput, StepInput] | None = None  # the weights that differ
    inputs: tuple[tuple[StepInput, StepInput], ...] = ()  # side by side
    at: int | None = None  # the position, if it is not that of the step
    is_exact: bool = False  # all that both steps were given is equal to the last bit

    @property
    def position(self) -> int:
        """The position in the execution order of b at which the error shows."""
        return self.step.index if self.at is None else self.at

    @property
    def error(self) -> float:
        """The error of the result."""
        return self.measures.error

    @property
    def exceeds_tolerance(self) -> bool:
        """Is the error beyond tolerance, or did the step add it?"""
        return self.error > self.tolerance or self.adds


class Judge:
    """Judge the steps of b by their counterparts in a.

    ``clean`` is the error that inputs may have, ``narrow`` the coarser dtype where the runs have different ones.
    """

    def __init__(self, pairs: Pairs, meter: Meter, tolerance: float | None = None) -> None:
        self.pairs, self.meter = pairs, meter
        self._user_tolerance = tolerance
        dtypes = [_dtypes_of(run) for run in (pairs.a, pairs.b)]
        self.same_dtypes = dtypes[0] == dtypes[1]
        self.narrow = narrower_dtype(*dtypes)
        floating = [dtype for dtype in (*dtypes[0], *dtypes[1]) if dtype in EPS]
        self.clean = tolerance_of(*floating) if floating else tolerance_of("float32")
        self.integer_share = NARROW_INTEGER_SHARE if eps_of(*floating) > EPS["float32"] else INTEGER_SHARE
        if tolerance is not None:
            self.clean = max(self.clean, tolerance)
        self.results: dict[int, StepResult] = {}
        self._used: set[int] | None = None  # numbers of the values of b that operations take
        self._rounding = CarriedRounding(pairs.a, pairs.b)
        self._within_b = Meter(pairs.b.trace, pairs.b.trace)

    def evaluate_all(self) -> Iterator[StepResult]:
        """Yield the result of every step of b that has a counterpart, in execution order, and keep it."""
        for step in self.pairs.b.steps:
            result = self.evaluate(step)
            if result is not None:
                self.results[step.index] = result
                yield result

    def evaluate(self, step: Step) -> StepResult | None:
        """Return the result of one step; ``None`` where there is nothing to compare it with."""
        if step.name in UNINITIALISED:
            return None
        partner = self.pairs.step_in_a(step)
        if partner is not None:
            results = [(partner, *both) for both in _facing_results(partner, step)]
            if self.meter.facing is not None:  # a state behind the last position differs where there are others
                results = [each for each in results if self._is_used(each[2])] or results
        elif step.transparent:
            return None
        else:  # a step that is no counterpart made the partner of its result
            sides = [(self.pairs.value_in_a(value), value) for value in step.outputs]
            makers = [(self.pairs.a.makers.get(a.number), a, b) for a, b in sides if a is not None]
            results = [(maker, a, b) for maker, a, b in makers if maker is not None]
        measured = [(self.meter(a, b), maker, a, b) for maker, a, b in results if comparable(a, b)]
        measured = [measurement for measurement in measured if measurement[0].what != "unknown"]
        if not measured:
            return None
        measures, maker, a, b = max(measured, key=lambda measurement: measurement[0].error)
        return self._step_result(step, maker, measures, a, b)

    def _is_used(self, value: Value) -> bool:
        """Does an operation of b take a value, or is it returned? It is taken to be used where no graph tells."""
        trace = self.pairs.b.trace
        if trace.call_graphs is None:
            return True
        if self._used is None:
            net = network.network_of(trace)
            self._used = {each.number for each in trace.root.returned or trace.root.outputs or ()}
            for id, node in net.nodes.items():
                made = {each.number for each in node.values}  # what picks a result of several passes it on
                given = {edge.value.number for edge in net.into.get(id, ()) if edge.value is not None}
                self._used |= given - made if node.kind not in PASSING else set()
        return value.number in self._used

    def casting_tolerance(self, a: Value, b: Value) -> float:
        """Return the error that casts to a dtype narrower than weights and inputs explain; 0.0 without such casts."""
        tolerance = 0.0 if self._user_tolerance is not None else self._rounding.tolerance(a, b)
        return tolerance if tolerance > self.clean else 0.0

    def clean_for(self, a: Value, b: Value) -> float:
        """Return the error that two values may have and count as equal."""
        return max(self.clean, self.casting_tolerance(a, b))

    def narrow_eps(self, a: Value, b: Value) -> float:
        """Return the rounding step between two values, where a dtype narrower than float32 is behind it; else 0.0."""
        if self.narrow is not None:
            return rounding_step(self.narrow)
        limit = 0.0 if self._user_tolerance is not None else self.clean_for(a, b)
        return limit / NARROW_ROUNDING_STEPS if limit > tolerance_of("float32") else 0.0

    def agree(self, a: Value, b: Value) -> bool:
        """Are two values equal within rounding?

        In a narrow dtype the tolerance is wide, and statistics may show a large error as small: there they must agree
        as closely as those of a sum do.
        """
        measures, limit = self.meter(a, b), self.clean_for(a, b)
        if measures.error > limit or measures.basis == "tensors" or self._user_tolerance is not None:
            return measures.error <= limit
        eps = self.narrow_eps(a, b) if self.narrow is None and a.dtype in EPS else 0.0
        if not eps or a.stats is None or b.stats is None or is_masked(a.stats):
            return True
        return agree_but_for_rounding(a.stats, b.stats, eps)

    def replacement_error(self, old: Value, new: Value) -> float:
        """Return how far a value of b is from the one that a hook put in its place; 0.0 where none can tell."""
        measures = self._within_b(old, new)
        return 0.0 if measures.what == "unknown" else measures.error

    def adds_error(self, index: int | None) -> bool:
        """Is a step of b already known to add error, compared with its own counterpart?"""
        result = None if index is None else self.results.get(index)
        return result is not None and result.adds and self.pairs.step_in_a(result.step) is result.partner

    def is_far_beyond(self, error: float, step: Step) -> bool:
        """Is an error far beyond all that is known on the way to what a step of b was given?

        Functions of single elements, such as activations, enlarge no error: theirs is then their own.
        """
        before = max((self._largest_error_upstream(given.value) for given in step.data), default=0.0)
        return error > max(GROWTH * before, self.clean)

    def _step_result(self, step: Step, partner: Step, measures: Measures, a: Value, b: Value) -> StepResult:
        alike = family(partner.name) == family(step.name)
        sides = facing_inputs(self.pairs, partner, step) if alike else []
        error_in, worst, weights, exact = 0.0, None, None, True
        if not alike:  # one step of a region each: what the step of b was given says what it inherits
            known = [both for given in step.data if (both := self.pairs.facing(given.value)) is not None]
            errors = [self.value_error(*both) for both in known]
            error_in, exact = max(errors, default=0.0), len(errors) == len(step.data) and not any(errors)
        for one, other in sides:
            error = self.input_error(one, other)
            if one.is_weight and other.is_weight:
                before = self._weight_error_before_runs(step, partner, one.value, other.value)
                error = error if before is None else before
            if one.is_weight and other.is_weight and self._weights_differ(one.value, other.value, error):
                weights = weights or (one, other)
            elif error > error_in:
                error_in, worst = error, (one, other)
            exact = exact and error == 0.0
        if measures.basis != "tensors" and is_masked(a.stats) and is_masked(b.stats) and error_in < math.inf:
            # statistics of masked scores show the largest one only: assume at least the error of the inputs
            measures = replace(measures, error=max(measures.error, error_in))
        tolerance = self.meter.tolerance(a, b)
        if not exact and self._user_tolerance is None:
            tolerance = max(tolerance, self.clean_for(a, b))  # float32 carries the rounding of bfloat16 before it
        if sides and exact and self._user_tolerance is None and a.dtype == b.dtype and partner.name == step.name:
            tolerance = self._exact_input_tolerance(step, partner, a, b, tolerance)
        if a.dtype not in EPS and measures.what != "shape":
            from_floats = any(given.value.dtype in EPS for given in step.inputs)
            # near a tie rounding decides: of a few integers, one may be another
            near_ties = max(self.integer_share, 1.0 / max(a.numel, 1))
            tolerance = near_ties if from_floats and not exact else 0.0
        carried = error_in
        if measures.basis == "tensors":  # an input's error by statistics alone may be far too small
            carried = max([error_in, *(self._known_error(other.value, 0) for _, other in sides if not other.is_weight)])
        limit = self._inherited_limit(step, partner, sides, a, b, carried, measures.basis)
        if self._only_copies_weights(step, partner):
            tolerance = min(tolerance, 2 * half_step(a.dtype, b.dtype))
        if step.name in SUMS:
            # a weight that differs is a cause, and is not inherited
            rounding, inherited = self._cancellation([side for side in sides if side != weights], a)
            tolerance, limit = max(tolerance, rounding), max(limit, inherited)
        adds = measures.error > max(tolerance, limit)
        if weights and worst is not None and self._has_other_rows(*worst):  # the weights differ all the same
            adds = adds or measures.error > tolerance
        casts = 0.0 if worst is None else self.casting_tolerance(worst[0].value, worst[1].value)
        if adds and not weights and error_in > max(self.clean, tolerance, casts):
            # only here, as it walks back over many values; statistics of an input may show a large error as small
            alike_known = worst is None or measures.basis == self.meter(worst[0].value, worst[1].value).basis
            adds = alike_known and {step.name, partner.name} <= ACTIVATIONS and self.is_far_beyond(measures.error, step)
        if measures.what == "shape" and any(self._is_other_choice(one, other) for one, other in sides):
            adds = False  # it is as large as what was chosen
        return StepResult(
            step, partner, a, b, measures, error_in, tolerance, adds, worst, weights, tuple(sides), is_exact=exact
        )

    def _is_other_choice(self, one: StepInput, other: StepInput) -> bool:
        """Are they indices or a mask that differ, within the tolerance of what was computed from floats?"""
        return one.value.dtype not in EPS and 0.0 < self.input_error(one, other) < math.inf

    def _has_other_rows(self, one: StepInput, other: StepInput) -> bool:
        """Has an input other rows than in a, or the same rows in another order, as an expert may be given?"""
        return self.meter(one.value, other.value).what == "shape" or self.meter.is_reordered(one.value, other.value)

    def _weights_differ(self, a: Value, b: Value, error: float) -> bool:
        """Do two weights hold other numbers? In two dtypes one rounding may be between them."""
        if self._user_tolerance is not None or not half_step(a.dtype, b.dtype) or not is_distinctive(a):
            return error > self.meter.tolerance(a, b)
        kinds = a.dtype, b.dtype
        if a.stats is not None and b.stats is not None and not may_be_copies(a.stats, b.stats, kinds):
            return True
        return self.meter(a, b).basis == "tensors" and error > rounding_limits(kinds)[0]

    def _weight_error_before_runs(self, step: Step, partner: Step, a: Value, b: Value) -> float | None:
        """Return the error of two weights before the runs, where the steps write into them; else ``None``.

        A norm in training writes its running statistics, and the trace has them as they were afterwards.
        """
        sides = (self.pairs.a.trace, partner, a), (self.pairs.b.trace, step, b)
        if not any(side.node.id in network.network_of(trace).writers for trace, side, _ in sides):
            return None
        parameters = [next((p for p in trace.parameters if value.name in p.names), None) for trace, _, value in sides]
        if not any(parameter is not None and parameter.changed for parameter in parameters):
            return None
        one, other = (None if parameter is None else parameter.before for parameter in parameters)
        return error_between(one, other) or 0.0

    def _only_copies_weights(self, step: Step, partner: Step) -> bool:
        """Do both sides only copy numbers out of weights, so that nothing but rounding is between them?"""
        if self.narrow is None or self._user_tolerance is not None:
            return False
        floats = [given for side in (partner, step) for given in side.inputs if given.value.dtype in EPS]
        alike = all(side.name in LOOKUPS | SLICES for side in (partner, step))
        return alike and bool(floats) and all(given.is_weight for given in floats)

    def _inherited_limit(
        self,
        step: Step,
        partner: Step,
        sides: list[tuple[StepInput, StepInput]],
        a: Value,
        b: Value,
        carried: float,
        basis: str,
    ) -> float:
        """Return the error that the errors of a step's inputs explain."""
        usual = GROWTH * carried * self._norm_growth(step, sides)
        eps = self.narrow_eps(a, b)
        if not eps or family(partner.name) != family(step.name):
            return usual
        most = growth_limit(step, sides, a)  # in a narrow dtype errors are large: a closer limit is needed
        if most is None:
            return usual
        before = [self._largest_error_upstream(other.value) for _, other in sides if not other.is_weight]
        unsure = 1.0 if basis == "tensors" else 2.0  # the error may be that of the largest element alone
        return min(usual, unsure * most * max([carried, eps / 4, *before]))

    def _largest_error_upstream(self, value: Value) -> float:
        """Return the largest error on the way to a value: judged by statistics, its own may look small by chance."""
        pending, visited, largest = [value], set[int](), 0.0
        while pending and len(visited) < NEAR:
            at = pending.pop(0)
            root = self.pairs.b.root(at)
            if root.number in visited:
                continue
            visited.add(root.number)
            both = self.pairs.facing(at)
            if both is not None and self.pairs.is_firm(at) and comparable(*both) and at.dtype in EPS:
                error = self.meter(*both).error
                largest = max(largest, error if math.isfinite(error) else 0.0)
            maker = self.pairs.b.makers.get(root.number)
            pending += [] if maker is None else [given.value for given in maker.data]
        return largest

    def _known_error(self, value: Value, depth: int) -> float:
        """Return the error of a value of b by data: its own, else the largest among the values it was computed from."""
        both = self.pairs.facing(value)
        if both is not None and comparable(*both):
            measures = self.meter(*both)
            if measures.basis == "tensors":
                return measures.error if math.isfinite(measures.error) else 0.0
        maker = self.pairs.b.maker(value)
        if maker is None or depth >= VIEWS:
            return 0.0
        return max([0.0, *(self._known_error(given.value, depth + 1) for given in maker.data)])

    def _norm_growth(self, step: Step, sides: list[tuple[StepInput, StepInput]]) -> float:
        """Return how many times more a norm enlarges errors than other steps: RMS over deviation of its input."""
        if step.name not in NORMS or not sides or sides[0][0].value.stats is None:
            return 1.0
        stats = sides[0][0].value.stats
        return max(1.0, rms_of(stats) / population_std(stats)) if population_std(stats) else 1.0

    def input_error(self, one: StepInput, other: StepInput) -> float:
        """Return the error of an input; 0.0 where the two cannot be compared."""
        return self.value_error(one.value, other.value)

    def value_error(self, a: Value, b: Value) -> float:
        """Return how far apart two values are; 0.0 where they cannot be compared."""
        if not comparable(a, b):
            return 0.0
        measures = self.meter(a, b)
        if measures.what == "shape" and a.dtype in EPS and visible_share(a) is not None:
            same = visible_share(a) == visible_share(b)  # a mask for one sequence, or a copy of it for each
            return 0.0 if same else measures.error
        return 0.0 if measures.what == "unknown" else measures.error

    def _exact_input_tolerance(self, step: Step, partner: Step, a: Value, b: Value, tolerance: float) -> float:
        """Return the tolerance on bit-equal inputs, which is strict: another constant may have a small effect."""
        if normalized_constants(step.constants) != normalized_constants(partner.constants):
            eps = eps_of(a.dtype, b.dtype)
            return min(tolerance, 2 * eps) if eps <= EPS["float32"] else 0.0  # nothing else explains other bits
        return min(tolerance, EXACT_INPUT_STEPS * eps_of(a.dtype, b.dtype)) if a.dtype == "float32" else tolerance

    def _cancellation(self, sides: list[tuple[StepInput, StepInput]], a: Value) -> tuple[float, float]:
        """Return two errors relative to a sum: from rounding its operands, and from the errors of its operands.

        Both are large where large numbers cancel to a small sum.
        """
        size = 0.0 if a.stats is None else rms_of(a.stats)
        rounding = inherited = 0.0
        for one, other in sides:
            operand = 0.0 if one.value.stats is None else rms_of(one.value.stats)
            error = self.input_error(one, other)
            rounding += operand * max(EPS.get(one.value.dtype, 0.0), EPS.get(other.value.dtype, 0.0))
            inherited += operand * error if math.isfinite(error) else 0.0
        if not size:
            return (math.inf if rounding else 0.0), inherited
        return 4 * rounding / size, 4 * inherited / size


def _facing_results(a: Step, b: Step) -> list[tuple[Value, Value]]:
    """Return the results of two steps side by side; unrecorded ones by the slots in their calls' outputs."""
    if a.unrecorded and b.unrecorded and a.call.outputs is not None and b.call.outputs is not None:
        slots = {value.number: slot for slot, value in a.call.outputs.named()}
        other = dict(b.call.outputs.named())
        return [
            (value, other[slots[value.number]]) if slots.get(value.number) in other else (value, beside)
            for value, beside in zip(a.results, b.results)
        ]
    return list(zip(a.results, b.results))


def comparable(a: Value, b: Value) -> bool:
    """Can two values be compared? A mask of booleans and one of numbers cannot."""
    return (a.dtype in EPS) == (b.dtype in EPS) or "bool" not in (a.dtype, b.dtype)


def _dtypes_of(run: StepList) -> frozenset[str]:
    """Return the dtypes of a run's weights and inputs."""
    weights = {value.dtype for value in run.values.values() if value.name is not None}
    weights |= {parameter.dtype for parameter in run.trace.parameters}
    return frozenset(weights | {value.dtype for value in run.trace.root.inputs})


def draws_random(step: Step) -> bool:
    """Does it draw random numbers? Dropout outside training does not, and it makes no new value."""
    if step.name in RANDOM:
        in_place = step.op.rpartition(".")[2] in DRAWS  # uniform_, whose result is what it was given
        return (bool(step.outputs) or in_place) and "training=False" not in step.constants
    made = step.node.step
    return made is not None and bool(dropped_by(step.op, made.args, made.kwargs))
