"""Masks, recognised by their statistics: additive masks, and masks of zeros and ones."""

from __future__ import annotations

import math

from fxdebug.data.values import Value
from fxdebug.operators.dtypes import FLOATS

# Beside zeros, a number from here down serves only to vanish in a softmax.
HIGHEST_MASK = -1e3


# A mask of a dtype's lowest number is still one after scores were added to it: T5 adds up to thousands.
LOWEST_SHARE = 0.95
_LARGEST_NUMBERS = [dtype.max for dtype in FLOATS.values() if dtype.bits > 8]


def is_mask(value: Value) -> bool:
    """Is it an additive mask: zeros and one number far below, the lowest numbers of a dtype, or -Inf?

    >>> from fxdebug.data.values import Stats
    >>> is_mask(Value(0, (4,), "float32", "cpu", stats=Stats(4, -5e8, 5.8e8, -1e9, 0.0, 1e9, zeros=2)))
    True
    """
    stats = value.stats
    if stats is None or stats.nan or stats.posinf:
        return False
    if not isinstance(stats.min, (int, float)) or not isinstance(stats.max, (int, float)):
        return False  # every element is infinite
    if stats.neginf and not stats.absmax:
        return True
    if any(LOWEST_SHARE * largest <= -stats.min <= largest for largest in _LARGEST_NUMBERS):
        return stats.max < 0.5 * -stats.min
    # with two different numbers only, the sum is the lower one times the count of elements that are not 0
    if stats.min > HIGHEST_MASK or stats.max > 0 or isinstance(stats.mean, complex) or stats.mean is None:
        return False
    return math.isclose(stats.mean * stats.finite, stats.min * (stats.finite - stats.zeros), rel_tol=1e-3)


def is_zero_one_mask(value: Value) -> bool:
    """Are all elements zeros and ones, with both present: a boolean mask stored as numbers?"""
    stats = value.stats
    if stats is None or stats.min != 0 or stats.max != 1 or stats.std is None or not isinstance(stats.mean, float):
        return False
    ones = stats.count - stats.zeros
    return stats.zeros > 0 and math.isclose(stats.mean * stats.count, ones, rel_tol=1e-4)
