"""A stretch of one dimension of a tensor in another tensor: where its numbers lie."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

CLOSE = 1e-4  # of the largest element: sums of parts are rounded otherwise


def places_in(whole: Tensor, part: Tensor, dim: int) -> list[int]:
    """Return where a part lies in a whole, along a dimension that is longer there."""
    if whole.ndim != part.ndim or whole.dtype != part.dtype or whole.shape[dim] <= part.shape[dim]:
        return []
    if rest_of(whole.shape, dim) != rest_of(part.shape, dim):
        return []
    count = part.shape[dim]
    return [at for at in range(whole.shape[dim] - count + 1) if are_alike(whole.narrow(dim, at, count), part)]


def rest_of(shape: Sequence[int], dim: int) -> list[int]:
    """Return a shape without one dimension."""
    return [size for at, size in enumerate(shape) if at != dim]


def are_alike(one: Tensor, other: Tensor) -> bool:
    """Are two tensors of one shape equal, but for rounding?"""
    if not one.is_floating_point():
        return torch.equal(one, other)
    gap, size = (one - other).abs().nan_to_num(), float(other.abs().nan_to_num(0.0, 0.0, 0.0).max())
    return float(gap.max()) <= CLOSE * size
