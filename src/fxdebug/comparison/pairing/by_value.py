"""Pair by equal statistics: weights first, then results.

Names and nesting do not matter. Results are paired as far as the two sides agree: up to the first fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable

from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.measures import TENSORS
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.rounding import half_step, may_be_copies
from fxdebug.comparison.steps import Step, StepList, interchangeable
from fxdebug.comparison.thresholds import CLOSE, COPIED, DIFFERENT
from fxdebug.comparison.tolerance import coarse_key, eps_of, error_between, is_distinctive
from fxdebug.data.values import Stats, Value, pooled
from fxdebug.operators.names import SLICES, family


def pair_weights(pairs: Pairs) -> None:
    """Pair parameters that hold the same numbers, transposed or not; those of the same shape first."""
    limit = max(COPIED, _dtype_tolerance(pairs))
    one = [value for value in _weights(pairs.a) if value.number not in pairs.values_of_a]
    other = [value for value in _weights(pairs.b) if value.number not in pairs.values]
    for same_shape in (True, False):
        index = _index(one, limit)
        for value in other:
            if value.number in pairs.values:
                continue
            for candidate in _similar_values(index, value, limit):
                if (same_shape and candidate.shape != value.shape) or not _may_be_one_weight(candidate, value):
                    continue
                if pairs.add_value(candidate, value, "weights", 0.95):
                    break


def pair_values(pairs: Pairs, meter: Meter) -> None:
    """Pair results that hold the same numbers, in execution order; those of the same operation first."""
    limit = max(CLOSE, _dtype_tolerance(pairs))
    for alike in (True, False):
        free = [value for value in _results(pairs.a) if value.number not in pairs.values_of_a]
        index = _index(free, limit)
        for value in list(_results(pairs.b)):
            if value.number in pairs.values:
                continue
            maker = pairs.b.makers[value.number]
            if not alike and _changes_nothing(maker):
                continue  # a sum with 0: another table with the same numbers is no counterpart
            candidates = _similar_values(index, value, limit)
            candidates = [v for v in candidates if v.number not in pairs.values_of_a]
            if limit > CLOSE:
                candidates = [v for v in candidates if not _is_coincidence(v, value, meter, limit)]
            fitting = [v for v in candidates if not alike or interchangeable(pairs.a.makers[v.number], maker)]
            # among several, prefer the one that the paired call made
            fitting.sort(key=lambda v: pairs.call_in_a(maker.call) is not pairs.a.makers[v.number].call)
            for candidate in fitting:
                pairs.add_value_and_makers(candidate, value, "values", 0.9 if len(candidates) == 1 else 0.8)
                break


def pair_rounded_values(pairs: Pairs, meter: Meter) -> None:
    """Pair results that are left over and agree but for the rounding of a narrow dtype, where no other result does.

    Two implementations in bfloat16 round at different places: only in float32 do their statistics agree closely.
    """
    limit = 2 * eps_of(*{value.dtype for run in (pairs.a, pairs.b) for value in _weights(run)})
    if limit <= CLOSE:
        return
    index_a = _index([v for v in _results(pairs.a) if v.number not in pairs.values_of_a], limit)
    index_b = _index([v for v in _results(pairs.b) if v.number not in pairs.values], limit)
    for value in [value for values in index_b.values() for value in values]:
        candidates = _similar_values(index_a, value, limit)
        if len(candidates) == 1 and len(_similar_values(index_b, candidates[0], limit)) == 1:
            measures = meter(candidates[0], value)
            if measures.basis != TENSORS or measures.error <= DIFFERENT:
                pairs.add_value(candidates[0], value, "values", 0.7)


def _changes_nothing(step: Step) -> bool:
    """Has a step's result the same statistics as what it is given?"""
    if len(step.data) != 1 or len(step.outputs) != 1:
        return False
    given, made = step.data[0].value, step.outputs[0]
    return given.numel == made.numel and error_between(given.stats, made.stats) == 0.0


def _may_be_one_weight(a: Value, b: Value) -> bool:
    """May two weights of equal statistics be one weight in two dtypes?"""
    return (
        a.dtype == b.dtype or a.stats is None or b.stats is None or may_be_copies(a.stats, b.stats, (a.dtype, b.dtype))
    )


def _is_coincidence(a: Value, b: Value, meter: Meter, limit: float) -> bool:
    """Do two values with similar statistics hold different numbers, as their data show?

    The same numbers in another order are no coincidence: their statistics agree far better than rounding explains.
    """
    measures = meter(a, b)
    unlike = measures.basis == TENSORS and measures.error > DIFFERENT
    return unlike and (error_between(a.stats, b.stats) or 0.0) > limit / 8


def _dtype_tolerance(pairs: Pairs) -> float:
    """Return how far apart equal values of these two runs may be: the rounding of the narrower dtype, or 0.0."""
    kinds = [{value.dtype for value in _weights(run) if value.name} for run in (pairs.a, pairs.b)]
    if kinds[0] == kinds[1]:
        return 0.0
    return 2 * eps_of(*kinds[0], *kinds[1]) if eps_of(*kinds[0]) != eps_of(*kinds[1]) else 0.0


def _weights(run: StepList) -> Iterable[Value]:
    return [value for value in run.values.values() if value.name is not None]


def _results(run: StepList) -> list[Value]:
    """Return the results of steps in execution order, without views of them."""
    return [
        value
        for step in run.steps
        if not step.transparent
        for value in step.outputs
        if run.view_of.get(value.number, value.number) == value.number and run.makers[value.number] is step
    ]


Index = dict[tuple[object, ...], list[Value]]


def _index(values: Iterable[Value], limit: float) -> Index:
    index: Index = defaultdict(list)
    for value in values:
        if is_distinctive(value) and value.stats is not None:
            index[(value.numel, *coarse_key(value.stats, limit))].append(value)
    return index


def _similar_values(index: Index, value: Value, limit: float) -> list[Value]:
    """Return values with these statistics, in execution order."""
    if not is_distinctive(value) or value.stats is None:
        return []
    (place,) = coarse_key(value.stats, limit)
    if place is None:
        return []
    near = [v for shift in (-1, 0, 1) for v in index.get((value.numel, place + shift), ())]
    fitting = [v for v in near if (error_between(v.stats, value.stats) or 0.0) <= limit]
    return sorted(fitting, key=lambda v: v.number)


def pair_fused_projections(pairs: Pairs) -> None:
    """Pair projections that are one on one side and several on the other (queries, keys and values; gate and up).

    They are products of one value with weights that hold the same numbers as a whole. Their inputs become a pair, and
    so do the parts of their results, in order.
    """
    one, other = _projections(pairs.a, pairs.values_of_a), _projections(pairs.b, pairs.values)
    taken: set[int] = set()
    for given, steps in other.items():
        weights = [_pooled(steps)]
        for candidate, makers in one.items():
            if candidate in taken or len(makers) == len(steps) or not (len(makers) == 1 or len(steps) == 1):
                continue
            stats = _pooled(makers)
            if stats.count != weights[0].count or not _hold_same_weights(stats, weights[0], makers[0], steps[0]):
                continue
            taken.add(candidate)
            pairs.add_value_and_makers(pairs.a.values[candidate], pairs.b.values[given], "weights", 0.9)
            left = [piece for step in makers for piece in _result_parts(pairs.a, step)]
            right = [piece for step in steps for piece in _result_parts(pairs.b, step)]
            if [value.numel for value in left] == [value.numel for value in right]:
                for x, y in zip(left, right):
                    if not pairs.both_unpaired(x, y):
                        continue
                    pairs.add_value(x, y, "weights", 0.7)
            break


def _hold_same_weights(a: Stats, b: Stats, one: Step, other: Step) -> bool:
    """Are these statistics of the same weights, in the dtypes in which the two steps use them?"""
    kinds = one.weights[0].value.dtype, other.weights[0].value.dtype
    return may_be_copies(a, b, kinds) if half_step(*kinds) else (error_between(a, b) or 0.0) <= COPIED


def _projections(run: StepList, paired: Container[int]) -> dict[int, list[Step]]:
    """Return products with weights that have no partner, by the number of the value that they are given."""
    products: dict[int, list[Step]] = defaultdict(list)
    for step in run.steps:
        weights = [given.value for given in step.weights if given.value.stats is not None]
        free = all(value.number not in paired for value in weights if len(value.shape) > 1)
        if family(step.name) == "product" and len(step.data) == 1 and weights and free:
            products[run.root(step.data[0].value).number].append(step)
    return products


def _pooled(steps: Iterable[Step]) -> Stats:
    return pooled([g.value.stats for step in steps for g in step.weights if g.value.stats and len(g.value.shape) > 1])


def _result_parts(run: StepList, step: Step) -> list[Value]:
    """Return the pieces taken out of a step's result where they are all of it; else the result itself."""
    cut = [user for user in run.users.get(step.outputs[0].number, ()) if user.name in SLICES]
    taken = [value for user in cut for value in user.outputs]
    return taken if taken and sum(value.numel for value in taken) == step.outputs[0].numel else list(step.outputs)
