"""A run that golden files are made of."""

from __future__ import annotations

import torch


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)
