"""Compare weights that are stored in different layouts: fused, split, transposed, or with a norm folded in."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable

from fxdebug.comparison.diagnosis.region import Region, pieces_of
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.rounding import half_step, rounding_limits, sum_rounding
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import COPIED
from fxdebug.comparison.tolerance import eps_of, rms_of
from fxdebug.data.values import Stats, Value, pooled
from fxdebug.operators.names import NORMS


def counterpart_makers(
    run: StepList, step: Step, partner: Callable[[Value], Value | None], other: StepList
) -> Iterable[Step]:
    """Yield the steps of the other side that make the pieces of a product with weights, as ``partner`` pairs them."""
    for part in pieces_of(run, step) if step.weights else ():
        value = partner(part)
        maker = None if value is None else other.makers.get(value.number)
        if maker is not None:
            yield maker


def norms_or_scales(region: Region) -> bool:
    """Has a region a batch norm, or a norm or a scale by weights? The other side may have it folded into a product."""
    scaling = [step for step in region.computing if step.name in NORMS | {"mul", "div"}]
    return any(step.name == "batch_norm" or step.weights for step in scaling)


def hold_different_numbers(a: Iterable[Value], b: Iterable[Value], meter: Meter) -> bool:
    """Do two sets of weights hold different numbers?

    Matrices and vectors are compared separately; zero vectors do not count.
    Between two dtypes rounding is allowed: of single numbers where the data are there, else of sums.
    """
    left, right = list(a), list(b)
    for matrices in (True, False):
        sides = [[v for v in side if (len(v.shape) > 1) == matrices and v.stats] for side in (left, right)]
        known = [[v.stats for v in side if v.stats is not None] for side in sides]
        if matrices and sum(s.count for s in known[0]) != sum(s.count for s in known[1]):
            return False  # of different sizes: not the same weights in two layouts
        if not matrices and sum(s.count - s.zeros for s in known[0]) != sum(s.count - s.zeros for s in known[1]):
            return False  # a norm or a bias more: that is what differs
        kinds = _coarsest_dtypes(*sides)
        same = meter.hold_same_numbers(sides[0], sides[1], *rounding_limits(kinds)) if half_step(*kinds) else None
        if same is False or (same is None and _sums_differ(known[0], known[1], kinds)):
            return True
    return False


def _coarsest_dtypes(a: Iterable[Value], b: Iterable[Value]) -> tuple[str, str]:
    """Return the coarsest dtype of either side; empty strings where both have the same ones."""
    one, other = ({value.dtype for value in side} for side in (a, b))
    if one == other or not one or not other:
        return "", ""
    return max(one, key=lambda dtype: eps_of(dtype)), max(other, key=lambda dtype: eps_of(dtype))


def _sums_differ(a: list[Stats], b: list[Stats], kinds: tuple[str, str]) -> bool:
    """Do statistics say that the two sides hold different numbers?"""
    sums = [_sums(side) for side in (a, b)]
    size = max(sums[0][1], sums[1][1])
    whole = pooled(a or b)
    mean, squares = sum_rounding(whole, kinds)
    limits = (max(COPIED, mean) * math.sqrt(size), max(COPIED, squares) * size)
    return bool(size) and any(abs(x - y) > limit for x, y, limit in zip(*sums, limits))


def _sums(parts: Iterable[Stats]) -> tuple[float, float]:
    """Return the sum of all elements over the root of their number, and the sum of their squares."""
    stats_of = list(parts)
    count = sum(stats.count for stats in stats_of)
    total = math.fsum(float(stats.mean.real) * stats.count for stats in stats_of if stats.mean is not None)
    return total / math.sqrt(max(count, 1)), math.fsum(rms_of(stats) ** 2 * stats.count for stats in stats_of)


def is_unpaired(value: Value, paired: Container[int]) -> bool:
    """Has a value no partner, where ``paired`` are the numbers of values that have one?"""
    return value.number not in paired
