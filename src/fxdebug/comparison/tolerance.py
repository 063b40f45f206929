"""Tolerances of dtypes, and the error between two values by their statistics alone.

An error is always one number, relative to the size of the elements of a. From statistics alone it is a lower bound:
tensors with equal statistics may still have their elements in different orders.
"""

from __future__ import annotations

import math
from typing import Any

from fxdebug.comparison.thresholds import MASK, NARROW_ROUNDING_STEPS, ROUNDING_STEPS, SUM_ROUNDING
from fxdebug.data.values import Stats, Value
from fxdebug.operators.dtypes import EPS


def eps_of(*dtypes: str) -> float:
    """Return the coarsest rounding step among some dtypes; 0.0 where none of them is floating."""
    return max((EPS.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def tolerance_of(*dtypes: str) -> float:
    """Return the error that rounding alone may cause in one operation on the coarsest of these dtypes.

    >>> tolerance_of("float32", "float32") < 1.1e-5, tolerance_of("float32", "bfloat16")
    (True, 0.03125)
    """
    coarsest = max(dtypes, key=lambda dtype: EPS.get(dtype, 0.0))
    return EPS.get(coarsest, 0.0) * ROUNDING_STEPS.get(coarsest, NARROW_ROUNDING_STEPS)


def rounding_step(dtype: str) -> float:
    """Return how far apart two sound results may be that were rounded once: in float32, a sum is rounded many times.

    >>> rounding_step("bfloat16") == 2**-7, rounding_step("float32") > 2**-20
    (True, True)
    """
    return tolerance_of(dtype) / NARROW_ROUNDING_STEPS


def rms_of(stats: Stats) -> float:
    """Return the root mean square of the finite elements."""
    if stats.mean is None or stats.std is None:
        return 0.0
    return math.hypot(abs(stats.mean), population_std(stats))


def population_std(stats: Stats) -> float:
    """Return the standard deviation with divisor n, which repeating a value does not change."""
    return (stats.std or 0.0) * math.sqrt((stats.finite - 1) / stats.finite) if stats.finite > 1 else 0.0


def is_additive_mask(stats: Stats | None) -> bool:
    """Is it an additive attention mask: nothing but zeros and one hugely negative number?"""
    if stats is None or stats.nan or stats.posinf:
        return False
    if stats.neginf:
        return stats.zeros + stats.neginf == stats.count
    low = stats.min
    return bool(
        isinstance(low, (int, float)) and low <= -MASK and stats.max is not None and stats.max <= 0 and stats.zeros
    )


def visible_share(value: Value) -> float | None:
    """Return the share of positions that a mask lets through; ``None`` for anything but a mask.

    For booleans it is the share of ``True``, which may mean hidden or visible.
    """
    stats = value.stats
    if stats is None or not stats.count:
        return None
    if value.dtype == "bool":
        return float(stats.mean) if isinstance(stats.mean, (int, float)) else None
    return stats.zeros / stats.count if is_additive_mask(stats) else None


def is_masked(stats: Stats | None) -> bool:
    """Was an additive mask added to it? Then its hugely negative elements say nothing about the rest."""
    if stats is None or not isinstance(stats.min, (int, float)) or not isinstance(stats.max, (int, float)):
        return False
    return stats.neginf > 0 or (stats.min <= -MASK and abs(stats.max) <= -stats.min / 100)


def _hidden_share(stats: Stats) -> float:
    """Return the share of masked scores that are hidden, estimated as mean over minimum."""
    finite = 0.0
    if isinstance(stats.mean, float) and isinstance(stats.min, (int, float)) and stats.min <= -MASK:
        finite = stats.mean / stats.min * stats.finite
    return (stats.neginf + finite) / max(stats.count, 1)


def error_between(a: Stats | None, b: Stats | None) -> float | None:
    """Return the error that mean, deviation, minimum and maximum show; ``None`` where there are no statistics.

    >>> one, other = Stats(4, 0.0, 1.0, -1.0, 1.0, 1.0), Stats(4, 0.0, 1.0, -1.0, 1.5, 1.5)
    >>> error_between(one, one), error_between(one, other)
    (0.0, 0.5)
    """
    if a is None or b is None:
        return None
    if a == b:
        return 0.0
    if is_additive_mask(a) and is_additive_mask(b):
        return _mask_error(a, b)
    if (
        is_masked(a)
        and is_masked(b)
        and (not a.neginf or not b.neginf)
        and not (a.nan or b.nan or a.posinf or b.posinf)
    ):
        assert isinstance(a.max, (int, float)) and isinstance(b.max, (int, float))
        error = abs(a.max - b.max) / max(abs(a.max), 1e-3)
        return error if abs(_hidden_share(a) - _hidden_share(b)) < 1e-3 else max(1.0, error)
    if (_share(a.nan, a), _share(a.posinf, a), _share(a.neginf, a)) != (
        _share(b.nan, b),
        _share(b.posinf, b),
        _share(b.neginf, b),
    ):
        return math.inf
    if a.mean is None or b.mean is None:
        return 0.0 if a.mean is b.mean else math.inf
    size, top = rms_of(a), float(a.absmax or 0.0)
    if size == 0.0:
        return 0.0 if rms_of(b) == 0.0 else math.inf
    parts = [abs(a.mean - b.mean) / size, abs(population_std(a) - population_std(b)) / size]
    for name in ("min", "max", "absmax"):
        one, other = getattr(a, name), getattr(b, name)
        if one is not None and other is not None and top:
            parts.append(abs(one - other) / top)
    return max(part if part == part else math.inf for part in parts)


def least_share_between(a: Stats | None, b: Stats | None) -> float | None:
    """Return the least share of integers or booleans that must differ, by their sums, zeros and extremes.

    How large the numbers are says nothing: they are indices, choices and masks. ``None`` where there are no statistics.

    >>> one = Stats(4, 1.5, 1.29, 0, 3, 3, zeros=1)  # 0, 1, 2, 3
    >>> least_share_between(one, Stats(4, 1.75, 1.5, 0, 3, 3, zeros=1)), least_share_between(one, one)
    (0.25, 0.0)
    """
    if a is None or b is None:
        return None
    if a == b:
        return 0.0
    known = [_real_numbers(s.mean, s.min, s.max) for s in (a, b)]
    if known[0] is None or known[1] is None:
        return 0.0 if (a.mean, a.min, a.max) == (b.mean, b.min, b.max) else 1.0
    means, lows, highs = zip(*(side for side in known if side is not None))
    low, high, count = min(lows), max(highs), max(a.count, b.count)
    squares = [rms_of(s) ** 2 for s in (a, b)]
    largest = max(low * low, high * high)
    least = 0.0 if low <= 0.0 <= high else min(low * low, high * high)
    shares = [abs(_share(a.zeros, a) - _share(b.zeros, b))]
    for gap, span, size in (
        (abs(means[0] - means[1]), high - low, max(abs(low), abs(high))),
        (abs(squares[0] - squares[1]), largest - least, largest),
    ):
        if gap > SUM_ROUNDING * size and span:
            shares.append(gap / span)
    if lows[0] != lows[1] or highs[0] != highs[1]:
        shares.append(1.0 / count)
    return min(1.0, math.ceil(max(shares) * count - 1e-3) / count)


def _real_numbers(*given: float | complex | None) -> tuple[float, ...] | None:
    """Return numbers as floats; ``None`` where one of them is missing or complex."""
    real = [float(x) for x in given if isinstance(x, (int, float))]
    return tuple(real) if len(real) == len(given) else None


def _share(count: int, stats: Stats) -> float:
    return round(count / stats.count, 9) if stats.count else 0.0


def _mask_error(a: Stats, b: Stats) -> float:
    """Return 0.0 for masks that hide equally many positions, however negative their numbers are; else 1.0."""
    return 0.0 if _share(a.zeros, a) == _share(b.zeros, b) else 1.0


def same_numbers(a: Stats | None, b: Stats | None) -> bool:
    """Do statistics say that these are the same elements, perhaps summed in another order?"""
    if a is None or b is None or a.mean is None or b.mean is None:
        return False
    exact = ("count", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")
    if any(getattr(a, name) != getattr(b, name) for name in exact):
        return False
    size = rms_of(a)
    return abs(a.mean - b.mean) <= 1e-7 * size and abs(population_std(a) - population_std(b)) <= 1e-7 * size


def is_distinctive(value: Value) -> bool:
    """Can its statistics tell a value from others? Those of constants, masks and integers cannot."""
    stats = value.stats
    if stats is None or stats.mean is None or value.numel < 4 or value.dtype not in EPS:
        return False
    if not math.isfinite(rms_of(stats)):  # numbers near the largest there are
        return False
    return bool(stats.std) and not is_additive_mask(stats) and not is_masked(stats) and stats.finite == stats.count


def coarse_key(stats: Stats, digits: float) -> tuple[Any, ...]:
    """Return a coarse key of statistics: values whose error is below ``digits`` have equal or neighbouring keys."""
    size = rms_of(stats)
    return (round(math.log(size) / math.log1p(digits)) if size else None,)
