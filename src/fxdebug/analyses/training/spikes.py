"""Spikes: numbers far above those of the steps before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

LEAST_STEPS = 20
RECENT = 100  # steps that count
SPIKE = 10.0  # robust z: of normal noise, one in 10^23
LEAST_RISE = 0.5  # of the median: a loss that hardly moves has a deviation near 0


def is_spike(history: Sequence[float | None], number: float) -> bool:
    """Is a number far above those of the last 100 steps, by median and median absolute deviation?

    The robust z is 0.6745 · (x − median) / MAD (Iglewicz and Hoaglin 1993). Fewer than 20 numbers tell nothing.

    >>> is_spike([1.0, 1.1] * 20, 5.0), is_spike([1.0, 1.1] * 20, 1.2), is_spike([1.0], 100.0)
    (True, False, False)
    """
    recent = [x for x in history[-RECENT:] if x is not None and math.isfinite(x)]
    if len(recent) < LEAST_STEPS or not math.isfinite(number):
        return False
    middle = median(recent)
    deviation = median(abs(x - middle) for x in recent)
    rise = number - middle
    return rise > LEAST_RISE * abs(middle) and 0.6745 * rise > SPIKE * deviation
