"""Advice about clipping gradients, from the norms of the steps so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LEAST_STEPS = 20
PERCENTILE = 90.0  # AutoClip clips at a percentile of the history: Seetharaman et al. 2020 take 10; 90 clips less
SPIKE = 3.0  # times the median: a step above is a spike


@dataclass(frozen=True, slots=True)
class Clipping:
    """Advice about ``clip_grad_norm_``.

    ``max_norm`` is ``None`` where no advice is given. ``clipped`` is the share of the steps, in percent, whose norm
    is above it; ``steps`` counts the finite norms.
    """

    advice: str
    steps: int
    max_norm: float | None = None
    clipped: float = 0.0


def clipping_advice(
    history: Sequence[float], *, percentile: float = PERCENTILE, spike: float = SPIKE, least: int = LEAST_STEPS
) -> Clipping:
    """Return advice from the total gradient norms of past steps, as ``clip_grad_norm_`` returns them.

    The suggested ``max_norm`` is a percentile of the history (AutoClip, Seetharaman et al. 2020). A history without
    a norm above ``spike`` times its median needs no clipping. Norms that are not finite are left out.

    >>> clipping_advice([1.0] * 100 + [50.0] * 5).max_norm
    1.0
    >>> clipping_advice([1.0] * 100).advice
    'not needed: no norm of 100 steps is above 3 times their median'
    >>> clipping_advice([1.0] * 5).advice
    'insufficient data: 5 steps, at least 20 are needed'
    """
    norms = sorted(norm for norm in history if math.isfinite(norm))
    if len(norms) < least:
        return Clipping(f"insufficient data: {len(norms)} steps, at least {least} are needed", len(norms))
    if norms[-1] <= spike * median(norms):
        return Clipping(f"not needed: no norm of {len(norms)} steps is above {spike:g} times their median", len(norms))
    limit = norms[min(len(norms) - 1, math.ceil(percentile / 100 * len(norms)) - 1)]
    clipped = 100 * sum(norm > limit for norm in norms) / len(norms)
    call = f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={limit:.3g})"
    return Clipping(f"{call} clips {clipped:.0f} % of {len(norms)} steps", len(norms), limit, clipped)
