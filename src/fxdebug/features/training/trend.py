"""The trend of a loss: does it fall, rise, or stay where it is?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fxdebug.features.shared.gradients.updates import LEAST_STEPS, Trend

MOST = 200  # numbers of each end that are compared
SURE = 3.09  # deviations: by chance, one in a thousand


def trend(losses: Sequence[float | None]) -> Trend | None:
    """Compare the first quarter of a loss with its last one, by the ranks of both (Mann and Whitney 1947).

    ``None`` for fewer than 20 numbers.

    >>> trend([1 / (i + 1) for i in range(40)]), trend([1.0, 1.1] * 20), trend([1.0] * 5)
    ('falling', 'flat', None)
    """
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(known) < LEAST_STEPS:
        return None
    size = max(LEAST_STEPS // 2, min(MOST, len(known) // 4))
    first, last = known[:size], known[-size:]
    lower = sum((b < a) + 0.5 * (b == a) for a in first for b in last)
    z = (lower - size * size / 2) / math.sqrt(size * size * (2 * size + 1) / 12)
    return "falling" if z > SURE else "rising" if z < -SURE else "flat"
