"""What rounding to a narrower dtype explains where two runs have different ones.

A number that is rounded once is off by half a rounding step at most, now up and now down. So of many numbers that were
only copied, the extremes are off by that much, and sums far less: as the root of their number grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fxdebug.comparison.steps import Step, StepInput
from fxdebug.comparison.tolerance import masked, size_of, spread
from fxdebug.data.values import Stats, Value
from fxdebug.operators.dtypes import EPS, FLOATS
from fxdebug.operators.names import ACTIVATIONS, CONVOLUTIONS, SLICES

EXACT = 1e-6  # weights are copied
SIGMAS = 6.0  # standard deviations that a sum of roundings may be off by
SLACK = 4.0  # times what an operation makes of errors that have nothing to do with one another
PLAIN_PRODUCTS = frozenset(["linear", "addmm", "matmul", "baddbmm", "einsum"])
ABOVE = 5.0  # times their size: the largest of some scores


def narrower(a: Iterable[str], b: Iterable[str]) -> str | None:
    """The coarsest floating dtype of two runs, where the coarsest of one is not that of the other.

    >>> narrower(["float32", "int64"], ["bfloat16"]), narrower(["float32"], ["float32"])
    ('bfloat16', None)
    """
    sides = [max((x for x in side if x in EPS), key=lambda x: EPS[x], default="") for side in (a, b)]
    if not all(sides) or EPS[sides[0]] == EPS[sides[1]]:
        return None
    return max(sides, key=lambda x: EPS[x])


def half_step(a: str, b: str) -> float:
    """How far apart a number may be in two dtypes, relative to it: nothing in one and the same."""
    return 0.0 if a == b else (EPS.get(a, 0.0) + EPS.get(b, 0.0)) / 2


def rounded(kinds: tuple[str, str]) -> tuple[float, float]:
    """How far one number may be off in two dtypes: relative to it, and where it is too small for that.

    Twice half a step: it may have been rounded on its way, too.
    """
    return 2 * half_step(*kinds), 2 * max(map(_least, kinds))


def copied(a: Stats, b: Stats, kinds: tuple[str, str]) -> bool:
    """May these be the statistics of the same numbers in two dtypes, in whatever order?

    >>> one = Stats(10000, 0.001, 0.02, -0.08, 0.08, 0.08)
    >>> copied(one, Stats(10000, 0.001, 0.02, -0.0801, 0.0802, 0.0802), ("float32", "bfloat16"))
    True
    >>> copied(one, Stats(10000, 0.001, 0.0201, -0.08, 0.08, 0.08), ("float32", "bfloat16"))
    False
    """
    if a.count != b.count or a.mean is None or b.mean is None:
        return a.count == b.count and a.mean is b.mean
    size, top = size_of(a), float(a.absmax or 0.0)
    if not size:
        return size_of(b) <= max(map(_least, kinds))
    off = _off(a, kinds)
    for name in ("min", "max", "absmax"):
        one, other = getattr(a, name), getattr(b, name)
        if one is not None and other is not None and abs(one - other) > max(EXACT, off) * top:
            return False
    sums, squares = summed(a, kinds)
    if abs(a.mean - b.mean) > max(EXACT, sums) * size:
        return False
    return abs(size_of(b) ** 2 - size**2) <= max(EXACT, squares) * size**2


def summed(stats: Stats, kinds: tuple[str, str]) -> tuple[float, float]:
    """How far the mean may be off, relative to the size of the numbers, and the sum of squares, relative to itself.

    Where they lie so close to one another that all may be rounded to the same side, nothing evens out.
    """
    off, size, count = _off(stats, kinds), size_of(stats), max(stats.finite, 1)
    if not off or not size:
        return 0.0, 0.0
    alike = spread(stats) < 2 * off * size
    evened = off * SIGMAS / math.sqrt(3 * count)
    few = float(stats.absmax or 0.0) / size  # a few large ones make up most of the squares
    return (off, 2 * off + off * off) if alike else (min(off, evened), min(2 * off, 2 * evened * few) + off * off)


def _off(stats: Stats, kinds: tuple[str, str]) -> float:
    """How far one number may be off, relative to the size of all."""
    size = size_of(stats)
    return half_step(*kinds) + (max(map(_least, kinds)) / size if size and kinds[0] != kinds[1] else 0.0)


def _least(dtype: str) -> float:
    """Half of the smallest number: so far off are numbers that are too small to be rounded like others."""
    return FLOATS[dtype].least / 2 if dtype in FLOATS else 0.0


# What operations make of errors --------------------------------------------------------------------


def enlarged(step: Step, sides: Iterable[tuple[StepInput, StepInput]], a: Value) -> float | None:
    """How many times larger errors may come out of a step than they went in; ``None`` where that is not known.

    Errors that rounding made point nowhere: a product makes of them what it makes of numbers of their size that
    have nothing to do with its weights. What comes out may be smaller than that, and the error is not.
    """
    given = [one.value for one, _ in sides if one.value.dtype in EPS]
    if a.stats is None or not given or any(value.stats is None for value in given):
        return None
    known = [value.stats for value in given if value.stats is not None]
    size, top = size_of(a.stats), float(a.stats.absmax or 0.0)
    if not size or not top:
        return None
    largest = max([size_of(stats) for stats in known])
    if step.name in ("softmax", "log_softmax"):
        return SLACK * max(1.0, _largest(known[0]))
    if step.name == "scaled_dot_product_attention" and len(known) >= 3:
        return SLACK * (1.0 + _scores(given)) * max(1.0, size_of(known[2]) / size)
    if step.name in PLAIN_PRODUCTS or step.name in CONVOLUTIONS:
        length = _length(given)
        sizes = [size_of(stats) for stats in known]
        return None if length is None else SLACK * max(1.0, math.sqrt(length) * sizes[0] * sizes[1] / size)
    if step.name == "mul" and len(known) == 2:
        return SLACK * max(1.0, size_of(known[0]) * size_of(known[1]) / size)
    if step.name in ACTIVATIONS | SLICES or step.name == "embedding":
        return SLACK * max(1.0, largest / size, max(float(stats.absmax or 0.0) for stats in known) / top)
    return None


def _largest(stats: Stats) -> float:
    """The largest of some scores, without those that a mask hides."""
    return abs(float(stats.max or 0.0)) if masked(stats) else float(stats.absmax or 0.0)


def _scores(given: list[Value]) -> float:
    """About the largest score of queries and keys, where the scale is the usual one."""
    q, k = (size_of(value.stats) if value.stats is not None else 0.0 for value in given[:2])
    return ABOVE * q * k


def _length(given: list[Value]) -> int | None:
    """How many products each number is a sum of."""
    if len(given) < 2 or len(given[0].shape) < 2 or len(given[1].shape) < 2:
        return None
    data, weights = given[:2]
    if len(weights.shape) > 2 and len(data.shape) == len(weights.shape):
        return max(data.shape[-1], math.prod(weights.shape[1:]))  # a convolution, or matrices
    return data.shape[-1]
