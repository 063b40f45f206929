"""Pairing by what values are: weights with equal statistics, then results with equal statistics.

Names and nesting play no part. It works as far as the two sides agree, which is up to the first fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable

from fxdebug.comparison.measures import TENSORS, Meter
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.rounding import EXACT, copied, half_step
from fxdebug.comparison.steps import Step, StepList, kindred
from fxdebug.comparison.tolerance import distinctive, eps_of, error_between, key_of
from fxdebug.data.values import Stats, Value, pooled
from fxdebug.operators.names import SLICES, family

UNLIKE = 0.1  # what rounding does not make of one value
CLOSE = 1e-4  # statistics of two implementations in float32 agree far better; other values far less


def pair_weights(pairs: Pairs) -> None:
    """Parameters that hold the same numbers, transposed or not; with the same shape first."""
    limit = max(EXACT, _coarse(pairs))
    one = [value for value in _weights(pairs.a) if value.number not in pairs.values_of_a]
    other = [value for value in _weights(pairs.b) if value.number not in pairs.values]
    for same_shape in (True, False):
        index = _index(one, limit)
        for value in other:
            if value.number in pairs.values:
                continue
            for candidate in _near(index, value, limit):
                if (same_shape and candidate.shape != value.shape) or not _copied(candidate, value):
                    continue
                if pairs.value(candidate, value, "weights", 0.95):
                    break


def pair_values(pairs: Pairs, meter: Meter) -> None:
    """Results that hold the same numbers, in execution order; made by the same operation first."""
    limit = max(CLOSE, _coarse(pairs))
    for alike in (True, False):
        free = [value for value in _results(pairs.a) if value.number not in pairs.values_of_a]
        index = _index(free, limit)
        for value in list(_results(pairs.b)):
            if value.number in pairs.values:
                continue
            maker = pairs.b.made[value.number]
            candidates = _near(index, value, limit)
            candidates = [v for v in candidates if v.number not in pairs.values_of_a]
            if limit > CLOSE:
                candidates = [v for v in candidates if not _merely_alike(v, value, meter, limit)]
            fitting = [v for v in candidates if not alike or _alike(pairs.a.made[v.number], maker)]
            # the one in the call of the same name, where there are several
            fitting.sort(key=lambda v: pairs.of_call(maker.call) is not pairs.a.made[v.number].call)
            for candidate in fitting:
                pairs.join(candidate, value, "values", 0.9 if len(candidates) == 1 else 0.8)
                break


def _copied(a: Value, b: Value) -> bool:
    """May two weights of equal statistics be one, in two dtypes?"""
    return a.dtype == b.dtype or a.stats is None or b.stats is None or copied(a.stats, b.stats, (a.dtype, b.dtype))


def _alike(a: Step, b: Step) -> bool:
    return kindred(a, b)


def _merely_alike(a: Value, b: Value, meter: Meter, limit: float) -> bool:
    """Do the data say that these are other numbers, and statistics no more than that they are of one size?

    Numbers in another order have statistics that agree far better than each number of a narrow dtype does.
    """
    measures = meter(a, b)
    unlike = measures.basis == TENSORS and measures.error > UNLIKE
    return unlike and (error_between(a.stats, b.stats) or 0.0) > limit / 8


def _coarse(pairs: Pairs) -> float:
    """How far apart equal values of these two runs may be: what their narrower dtype rounds to, or not at all."""
    kinds = [{value.dtype for value in _weights(run) if value.name} for run in (pairs.a, pairs.b)]
    if kinds[0] == kinds[1]:
        return 0.0
    return 2 * eps_of(*kinds[0], *kinds[1]) if eps_of(*kinds[0]) != eps_of(*kinds[1]) else 0.0


def _weights(run: StepList) -> Iterable[Value]:
    return [value for value in run.values.values() if value.name is not None]


def _results(run: StepList) -> list[Value]:
    """What steps made, one for all views of it, in execution order."""
    return [
        value
        for step in run.steps
        if not step.transparent
        for value in step.outputs
        if run.same.get(value.number, value.number) == value.number and run.made[value.number] is step
    ]


Index = dict[tuple[object, ...], list[Value]]


def _index(values: Iterable[Value], limit: float) -> Index:
    index: Index = defaultdict(list)
    for value in values:
        if distinctive(value) and value.stats is not None:
            index[(value.numel, *key_of(value.stats, limit))].append(value)
    return index


def _near(index: Index, value: Value, limit: float) -> list[Value]:
    """Values with these statistics, in execution order."""
    if not distinctive(value) or value.stats is None:
        return []
    (place,) = key_of(value.stats, limit)
    if place is None:
        return []
    near = [v for shift in (-1, 0, 1) for v in index.get((value.numel, place + shift), ())]
    fitting = [v for v in near if (error_between(v.stats, value.stats) or 0.0) <= limit]
    return sorted(fitting, key=lambda v: v.number)


def pair_fused(pairs: Pairs) -> None:
    """Projections that are one on one side and several on the other (queries, keys and values; gate and up).

    Products of one value with weights that hold the same numbers altogether: what they are given is a pair, and so
    are the parts, in their order.
    """
    one, other = _projections(pairs.a, pairs.values_of_a), _projections(pairs.b, pairs.values)
    taken: set[int] = set()
    for given, steps in other.items():
        weights = [_pooled(steps)]
        for candidate, makers in one.items():
            if candidate in taken or len(makers) == len(steps) or not (len(makers) == 1 or len(steps) == 1):
                continue
            stats = _pooled(makers)
            if stats.count != weights[0].count or not _hold_the_same(stats, weights[0], makers[0], steps[0]):
                continue
            taken.add(candidate)
            pairs.join(pairs.a.values[candidate], pairs.b.values[given], "weights", 0.9)
            left, right = ([part for step in side for part in _in_parts(run, step)] for run, side in
                           ((pairs.a, makers), (pairs.b, steps)))  # fmt: skip
            if [value.numel for value in left] == [value.numel for value in right]:
                for x, y in zip(left, right):
                    if not pairs.free(x, y):
                        continue
                    pairs.value(x, y, "weights", 0.7)
            break


def _hold_the_same(a: Stats, b: Stats, one: Step, other: Step) -> bool:
    """Are these statistics of the same weights, which two steps use in dtypes of their own?"""
    kinds = one.weights[0].value.dtype, other.weights[0].value.dtype
    return copied(a, b, kinds) if half_step(*kinds) else (error_between(a, b) or 0.0) <= EXACT


def _projections(run: StepList, paired: Container[int]) -> dict[int, list[Step]]:
    """Products with weights that have no partner, by the value that they are given."""
    found: dict[int, list[Step]] = defaultdict(list)
    for step in run.steps:
        weights = [given.value for given in step.weights if given.value.stats is not None]
        free = all(value.number not in paired for value in weights if len(value.shape) > 1)
        if family(step.name) == "product" and len(step.data) == 1 and weights and free:
            found[run.root(step.data[0].value).number].append(step)
    return found


def _pooled(steps: Iterable[Step]) -> Stats:
    return pooled([g.value.stats for step in steps for g in step.weights if g.value.stats and len(g.value.shape) > 1])


def _in_parts(run: StepList, step: Step) -> list[Value]:
    """A result, or what is taken out of it where that is all of it in parts of one size."""
    cut = [user for user in run.users.get(step.outputs[0].number, ()) if user.name in SLICES]
    taken = [value for user in cut for value in user.outputs]
    return taken if taken and sum(value.numel for value in taken) == step.outputs[0].numel else list(step.outputs)
