"""The distance of results that a script computes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fxdebug.comparison.tolerance import error_between
from fxdebug.features.repro.targets import Target
from fxdebug.stats.measure import measure


def relative_error(one: Any, other: Any) -> float:
    """Return how far two results are apart, relative to the size of the first; of integers, the share that differs.

    >>> relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.5])), relative_error(torch.ones(2), 1)
    (0.1, inf)
    """
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.numel() != other.numel():
        return math.inf
    x, y = one.detach().reshape(-1), other.detach().reshape(-1)
    if not (_is_continuous(x) and _is_continuous(y)):
        return float((x != y).double().mean()) if x.numel() else 0.0
    kind = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64
    x, y = x.to(kind), y.to(kind)
    if not torch.equal(x.isfinite(), y.isfinite()):
        return math.inf
    x, y = x[x.isfinite()], y[y.isfinite()]
    size, distance = float(x.abs().square().sum()), float((x - y).abs().square().sum())
    return math.sqrt(distance / size) if size else (0.0 if not distance else math.inf)


def error_of_rerun(result: Any, target: Target) -> float:
    """Return how far a result is from what the run recorded: from its data, or else from its statistics."""
    value = target.value
    if not isinstance(result, Tensor) or tuple(result.shape) != value.shape or str(result.dtype)[6:] != value.dtype:
        return math.inf
    if target.hand.is_kept(value):
        return relative_error(target.hand.given(value), result)
    error = error_between(value.stats, measure(result))
    return math.inf if error is None else error


def _is_continuous(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
