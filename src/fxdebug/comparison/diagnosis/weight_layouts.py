"""What weights hold altogether, in whatever layout: fused here and apart there, or a norm in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fxdebug.comparison.diagnosis.region import Region, parts
from fxdebug.comparison.measures import Meter
from fxdebug.comparison.rounding import EXACT, half_step, rounded, summed
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.tolerance import eps_of, size_of
from fxdebug.data.values import Stats, Value, pooled


def makers(run: StepList, step: Step, partner: Callable[[Value], Value | None], other: StepList) -> Iterable[Step]:
    """Who makes, on the other side, what is taken out of the product of a step with weights."""
    for part in parts(run, step) if step.weights else ():
        value = partner(part)
        maker = None if value is None else other.made.get(value.number)
        if maker is not None:
            yield maker


def folds(found: Region) -> bool:
    """Has it a norm over the batch, or scales by weights? Where only one has, the other may have it in its products."""
    return any(step.name == "batch_norm" or (step.name in ("mul", "div") and step.weights) for step in found.doing)


def hold_others(a: Iterable[Value], b: Iterable[Value], meter: Meter) -> bool:
    """Do two sets of weights hold other numbers? Matrices and vectors apart; a vector of zeros may be left out.

    Numbers of two dtypes may be as far apart as rounding drives them: each of them where the data are there, else
    their sums.
    """
    left, right = list(a), list(b)
    for matrices in (True, False):
        sides = [[v for v in side if (len(v.shape) > 1) == matrices and v.stats] for side in (left, right)]
        known = [[v.stats for v in side if v.stats is not None] for side in sides]
        if matrices and sum(s.count for s in known[0]) != sum(s.count for s in known[1]):
            return False  # of different sizes: they do not stand for each other
        kinds = _kinds(*sides)
        same = meter.hold_the_same(sides[0], sides[1], *rounded(kinds)) if half_step(*kinds) else None
        if same is False or (same is None and _other_sums(known[0], known[1], kinds)):
            return True
    return False


def _kinds(a: Iterable[Value], b: Iterable[Value]) -> tuple[str, str]:
    """The coarsest dtype of either side, where they do not have the same ones."""
    one, other = ({value.dtype for value in side} for side in (a, b))
    if one == other or not one or not other:
        return "", ""
    return max(one, key=lambda dtype: eps_of(dtype)), max(other, key=lambda dtype: eps_of(dtype))


def _other_sums(a: list[Stats], b: list[Stats], kinds: tuple[str, str]) -> bool:
    """Do statistics say that these are other numbers?"""
    sums = [_sums(side) for side in (a, b)]
    size = max(sums[0][1], sums[1][1])
    whole = pooled(a or b)
    mean, squares = summed(whole, kinds)
    limits = (max(EXACT, mean) * math.sqrt(size), max(EXACT, squares) * size)
    return bool(size) and any(abs(x - y) > limit for x, y, limit in zip(*sums, limits))


def _sums(parts: Iterable[Stats]) -> tuple[float, float]:
    """The sum of all elements, in units of the root of their number, and of their squares."""
    held = list(parts)
    count = sum(stats.count for stats in held)
    total = math.fsum(float(stats.mean.real) * stats.count for stats in held if stats.mean is not None)
    return total / math.sqrt(max(count, 1)), math.fsum(size_of(stats) ** 2 * stats.count for stats in held)


def free(value: Value, paired: Iterable[int]) -> bool:
    """Has a value no partner?"""
    return value.number not in paired
