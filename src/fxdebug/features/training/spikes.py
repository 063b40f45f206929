"""Spikes: numbers far above those of the steps before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

LEAST_STEPS = 20
RECENT = 100  # steps that count
SPIKE = 10.0  # robust z: of normal noise, one in 10^23
LEAST_RISE = 0.5  # of the median: a loss that hardly moves has a deviation near 0
LOG_SPIKE = 5.0  # robust z of the logarithms: numbers near 0 vary by orders of magnitude
LEAST_SHARE = 0.05  # of what the training began with: below, a loss that is nearly 0 moves


def is_spike(history: Sequence[float | None], number: float, first: Sequence[float | None] = ()) -> bool:
    """Is a number far above those of the last 100 steps, by median and median absolute deviation?

    The robust z is 0.6745 · (x − median) / MAD (Iglewicz and Hoaglin 1993); of positive numbers that of the logarithms
    must be large, too. Fewer than 20 numbers tell nothing. ``first`` are the numbers that the training began with,
    where ``history`` does not go back to them: a rise of less than a twentieth of their median is none.

    >>> is_spike([1.0, 1.1] * 20, 5.0), is_spike([1.0, 1.1] * 20, 1.2), is_spike([1.0], 100.0)
    (True, False, False)
    >>> is_spike([1e-4, 1.1e-4] * 20, 2e-2, first=[2.3])
    False
    """
    recent = [x for x in history[-RECENT:] if x is not None and math.isfinite(x)]
    if len(recent) < LEAST_STEPS or not math.isfinite(number):
        return False
    middle = median(recent)
    deviation = median(abs(x - middle) for x in recent)
    rise = number - middle
    if not (rise > LEAST_RISE * abs(middle) and 0.6745 * rise > SPIKE * deviation):
        return False
    began = [x for x in (first or history)[:LEAST_STEPS] if x is not None and math.isfinite(x)]
    if rise < LEAST_SHARE * abs(median(began or [0.0])):
        return False
    if min(recent) <= 0:
        return True
    logs = [math.log(x) for x in recent]
    usual = median(logs)
    return 0.6745 * (math.log(number) - usual) > LOG_SPIKE * median(abs(x - usual) for x in logs)
