"""Limits of rounding between two dtypes: of single numbers, of sums, of the statistics of copies.

A number that is rounded once is off by half a rounding step at most, up or down. So among many numbers that were only
copied, the extremes may be off by that much, but sums by far less: their error grows as the root of the count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fxdebug.comparison.thresholds import COPIED, SIGMAS
from fxdebug.comparison.tolerance import population_std, rms_of
from fxdebug.data.values import Stats
from fxdebug.operators.dtypes import EPS, FLOATS


def narrower_dtype(a: Iterable[str], b: Iterable[str]) -> str | None:
    """Return the coarser one of the coarsest floating dtypes of two runs; ``None`` where they are equally coarse.

    >>> narrower_dtype(["float32", "int64"], ["bfloat16"]), narrower_dtype(["float32"], ["float32"])
    ('bfloat16', None)
    """
    sides = [max((x for x in side if x in EPS), key=lambda x: EPS[x], default="") for side in (a, b)]
    if not all(sides) or EPS[sides[0]] == EPS[sides[1]]:
        return None
    return max(sides, key=lambda x: EPS[x])


def half_step(a: str, b: str) -> float:
    """Return how far apart one number may be in two dtypes, relative to it; 0.0 for equal dtypes."""
    return 0.0 if a == b else (EPS.get(a, 0.0) + EPS.get(b, 0.0)) / 2


def rounding_limits(kinds: tuple[str, str]) -> tuple[float, float]:
    """Return how far one number may be off in two dtypes: relative to it, and absolutely where it is tiny.

    This is a whole step each, not half: the number may have been rounded on its way, too.
    """
    return 2 * half_step(*kinds), 2 * max(map(_half_smallest, kinds))


def may_be_copies(a: Stats, b: Stats, kinds: tuple[str, str]) -> bool:
    """May these be the statistics of the same numbers in two dtypes, in whatever order?

    >>> one = Stats(10000, 0.001, 0.02, -0.08, 0.08, 0.08)
    >>> may_be_copies(one, Stats(10000, 0.001, 0.02, -0.0801, 0.0802, 0.0802), ("float32", "bfloat16"))
    True
    >>> may_be_copies(one, Stats(10000, 0.001, 0.0201, -0.08, 0.08, 0.08), ("float32", "bfloat16"))
    False
    """
    if a.count != b.count or a.mean is None or b.mean is None:
        return a.count == b.count and a.mean is b.mean
    size, top = rms_of(a), float(a.absmax or 0.0)
    if not size:
        return rms_of(b) <= max(map(_half_smallest, kinds))
    off = _element_rounding(a, kinds)
    for name in ("min", "max", "absmax"):
        one, other = getattr(a, name), getattr(b, name)
        if one is not None and other is not None and abs(one - other) > max(COPIED, off) * top:
            return False
    sums, squares = sum_rounding(a, kinds)
    if abs(a.mean - b.mean) > max(COPIED, sums) * size:
        return False
    return abs(rms_of(b) ** 2 - size**2) <= max(COPIED, squares) * size**2


def agree_but_for_rounding(a: Stats, b: Stats, eps: float) -> bool:
    """Do statistics of a result say that two runs computed it alike, but each rounded to steps of ``eps`` on its way?

    The extremes may be off by a step. Mean and deviation may be off by far less, as rounding evens out.

    >>> one = Stats(900, 0.01, 1.0, -3.0, 3.0, 3.0)
    >>> agree_but_for_rounding(one, Stats(900, 0.0105, 1.0005, -3.0, 3.02, 3.02), 2**-7)
    True
    >>> agree_but_for_rounding(one, Stats(900, 0.01, 1.006, -3.0, 3.0, 3.0), 2**-7)
    False
    """
    size, top = rms_of(a), float(a.absmax or 0.0)
    if a.mean is None or b.mean is None or not size:
        return a.mean is b.mean
    extremes = [(getattr(a, name), getattr(b, name)) for name in ("min", "max", "absmax")]
    if any(abs(x - y) > eps * top for x, y in extremes if x is not None and y is not None):
        return False
    evened = min(1.0, SIGMAS / math.sqrt(max(a.finite, 1))) * eps * size
    return abs(a.mean - b.mean) <= evened and abs(population_std(a) - population_std(b)) <= evened


def sum_rounding(stats: Stats, kinds: tuple[str, str]) -> tuple[float, float]:
    """Return how far the mean may be off, relative to the numbers' RMS, and the sum of squares, relative to itself.

    Rounding evens out, unless the numbers lie so close to one another that all may be rounded to the same side.
    """
    off, size, count = _element_rounding(stats, kinds), rms_of(stats), max(stats.finite, 1)
    if not off or not size:
        return 0.0, 0.0
    if population_std(stats) < 2 * off * size:  # all may be rounded to the same side
        return off, 2 * off + off * off
    evened = off * SIGMAS / math.sqrt(3 * count)
    peak = float(stats.absmax or 0.0) / size  # where it is large, a few numbers make up most of the squares
    return min(off, evened), min(2 * off, 2 * evened * peak) + off * off


def _element_rounding(stats: Stats, kinds: tuple[str, str]) -> float:
    """Return how far one number may be off, relative to the RMS of all."""
    size = rms_of(stats)
    return half_step(*kinds) + (max(map(_half_smallest, kinds)) / size if size and kinds[0] != kinds[1] else 0.0)


def _half_smallest(dtype: str) -> float:
    """Return half of the smallest number of a dtype, the error of numbers too small for its relative rounding."""
    return FLOATS[dtype].least / 2 if dtype in FLOATS else 0.0
