"""Limits of rounding errors: what values carry, and what an operation makes of the errors of its inputs.

A value that was computed in float32 from bfloat16 is no more exact than bfloat16. Under autocast, and wherever a model
casts, dtypes narrower than those of weights and inputs come and go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.thresholds import FEW_TIMES, SIGMAS
from fxdebug.comparison.tolerance import eps_of, is_masked, rms_of, tolerance_of
from fxdebug.data.values import Stats, Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import ACTIVATIONS, CONVOLUTIONS, SLICES

PLAIN_PRODUCTS = frozenset(["linear", "addmm", "matmul", "baddbmm", "einsum"])


def growth_limit(step: Step, sides: Iterable[tuple[StepInput, StepInput]], a: Value) -> float | None:
    """Return the most by which a step may multiply the errors of its inputs; ``None`` where that is unknown.

    Rounding errors have no direction: a product treats them like random numbers of their size, independent of its
    weights. Its result may be smaller than a product of such numbers; its error is not. ``a`` is the result in run a.
    """
    given = [one.value for one, _ in sides if one.value.dtype in EPS]
    if a.stats is None or not given or any(value.stats is None for value in given):
        return None
    known = [value.stats for value in given if value.stats is not None]
    size, top = rms_of(a.stats), float(a.stats.absmax or 0.0)
    if not size or not top:
        return None
    largest = max([rms_of(stats) for stats in known])
    if step.name in ("softmax", "log_softmax"):
        return FEW_TIMES * max(1.0, _largest_visible(known[0]))
    if step.name == "scaled_dot_product_attention" and len(known) >= 3:
        return FEW_TIMES * (1.0 + _largest_score(given)) * max(1.0, rms_of(known[2]) / size)
    if step.name in PLAIN_PRODUCTS or step.name in CONVOLUTIONS:
        length = _terms_per_sum(given)
        sizes = [rms_of(stats) for stats in known]
        return None if length is None else FEW_TIMES * max(1.0, math.sqrt(length) * sizes[0] * sizes[1] / size)
    if step.name == "mul" and len(known) == 2:
        return FEW_TIMES * max(1.0, rms_of(known[0]) * rms_of(known[1]) / size)
    if step.name in ACTIVATIONS | SLICES or step.name == "embedding":
        return FEW_TIMES * max(1.0, largest / size, max(float(stats.absmax or 0.0) for stats in known) / top)
    return None


def _largest_visible(stats: Stats) -> float:
    """Return the size of the largest score, without those that a mask hides."""
    return abs(float(stats.max or 0.0)) if is_masked(stats) else float(stats.absmax or 0.0)


def _largest_score(given: list[Value]) -> float:
    """Estimate the largest score of queries and keys, for the usual scale."""
    q, k = (rms_of(value.stats) if value.stats is not None else 0.0 for value in given[:2])
    return SIGMAS * q * k


def _terms_per_sum(given: list[Value]) -> int | None:
    """Return the number of products in the sum for one element of a matrix product or convolution."""
    if len(given) < 2 or len(given[0].shape) < 2 or len(given[1].shape) < 2:
        return None
    data, weights = given[:2]
    if len(weights.shape) > 2 and len(data.shape) == len(weights.shape):
        return max(data.shape[-1], math.prod(weights.shape[1:]))  # a convolution, or matrices
    return data.shape[-1]


# What values carry ---------------------------------------------------------------------------------


class CarriedRounding:
    """The coarsest dtype on the way to each value of two runs."""

    def __init__(self, a: StepList, b: StepList) -> None:
        self._a, self._b = a, b
        self._coarsest = coarsest_upstream(a), coarsest_upstream(b)

    def tolerance(self, a: Value, b: Value) -> float:
        """Return the error that the rounding explains that both values carry: where only one does, it is an error."""
        dtypes = [
            coarsest.get(value.number) or coarsest.get(run.root(value).number) or value.dtype
            for run, coarsest, value in zip((self._a, self._b), self._coarsest, (a, b))
        ]
        return min(map(tolerance_of, dtypes))


def coarsest_upstream(run: StepList) -> dict[int, str]:
    """Return for each result of a run, by number, the coarsest dtype of it and of all that it was computed from."""
    coarsest: dict[int, str] = {}
    for step in run.steps:
        given = [coarsest.get(item.value.number, item.value.dtype) for item in step.inputs]
        for value in step.outputs:
            coarsest.setdefault(value.number, max((*given, value.dtype), key=eps_of))
    return coarsest
