"""Limits of error growth: how much an operation may enlarge the rounding errors of its inputs in a narrow dtype."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fxdebug.comparison.steps import Step, StepInput
from fxdebug.comparison.tolerance import is_masked, rms_of
from fxdebug.data.values import Stats, Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import ACTIVATIONS, CONVOLUTIONS, SLICES

SLACK = 4.0  # errors may grow this many times more than independent errors would
PLAIN_PRODUCTS = frozenset(["linear", "addmm", "matmul", "baddbmm", "einsum"])
LARGEST_OVER_RMS = 5.0  # of attention scores, about


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
        return SLACK * max(1.0, _largest_visible(known[0]))
    if step.name == "scaled_dot_product_attention" and len(known) >= 3:
        return SLACK * (1.0 + _largest_score(given)) * max(1.0, rms_of(known[2]) / size)
    if step.name in PLAIN_PRODUCTS or step.name in CONVOLUTIONS:
        length = _terms_per_sum(given)
        sizes = [rms_of(stats) for stats in known]
        return None if length is None else SLACK * max(1.0, math.sqrt(length) * sizes[0] * sizes[1] / size)
    if step.name == "mul" and len(known) == 2:
        return SLACK * max(1.0, rms_of(known[0]) * rms_of(known[1]) / size)
    if step.name in ACTIVATIONS | SLICES or step.name == "embedding":
        return SLACK * max(1.0, largest / size, max(float(stats.absmax or 0.0) for stats in known) / top)
    return None


def _largest_visible(stats: Stats) -> float:
    """Return the size of the largest score, without those that a mask hides."""
    return abs(float(stats.max or 0.0)) if is_masked(stats) else float(stats.absmax or 0.0)


def _largest_score(given: list[Value]) -> float:
    """Estimate the largest score of queries and keys, for the usual scale."""
    q, k = (rms_of(value.stats) if value.stats is not None else 0.0 for value in given[:2])
    return LARGEST_OVER_RMS * q * k


def _terms_per_sum(given: list[Value]) -> int | None:
    """Return the number of products in the sum for one element of a matrix product or convolution."""
    if len(given) < 2 or len(given[0].shape) < 2 or len(given[1].shape) < 2:
        return None
    data, weights = given[:2]
    if len(weights.shape) > 2 and len(data.shape) == len(weights.shape):
        return max(data.shape[-1], math.prod(weights.shape[1:]))  # a convolution, or matrices
    return data.shape[-1]
