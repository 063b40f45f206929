"""Printed text that is the same on every machine: the last digit of a computed number is not."""

from __future__ import annotations

import re
from decimal import Decimal

# A sum over a tensor is done in another order by another processor, and its last digit may differ.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w)")
FLOAT32 = Decimal("1e-6")  # of a number with all its digits: what sums of float32 differ by
NOISE = Decimal("1e-6")  # what rounding leaves of a mean that is zero: no digit of it is right


def same_but_rounding(a: str, b: str) -> bool:
    """Are two printed texts equal but for blanks and the last digit of numbers with a decimal point?

    >>> same_but_rounding("std=0.513067, min=-1", "std=0.513066,\\n  min=-1")
    True
    >>> same_but_rounding("std=0.513067", "std=0.513165"), same_but_rounding("count=32", "count=31")
    (False, False)
    >>> same_but_rounding("mean -1.3e-08", "mean 1.9e-08"), same_but_rounding("mean -1.3e-08", "mean 1.9e-02")
    (True, False)
    """
    if a == b:
        return True
    words = [_NUMBER.sub("‹number›", text).split() for text in (a, b)]
    numbers = [_NUMBER.findall(text) for text in (a, b)]
    return words[0] == words[1] and all(map(_close, *numbers))


def _close(a: str, b: str) -> bool:
    if a == b or (a.lstrip("-").isdigit() and b.lstrip("-").isdigit()):
        return a == b
    x, y = Decimal(a), Decimal(b)
    units = [Decimal(1).scaleb(int(x.as_tuple().exponent)) for x in (x, y) if not str(x).lstrip("-").isdigit()]
    return abs(x - y) <= max(*units, FLOAT32 * max(abs(x), abs(y))) or max(abs(x), abs(y)) < NOISE
