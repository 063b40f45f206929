"""Additive masks are recognised by their statistics."""

from __future__ import annotations

import torch

from fxdebug.data.values import Value
from fxdebug.operators.masks import is_mask
from fxdebug.stats.measure import measure


def value_of(tensor: torch.Tensor) -> Value:
    return Value(0, tuple(tensor.shape), str(tensor.dtype)[6:], "cpu", stats=measure(tensor))


def test_masks_are_told_from_numbers_that_are_merely_large() -> None:
    lowest = torch.finfo(torch.float32).min
    masks = [[0, lowest], [0.0, -1e9, -1e9], [0, -torch.inf], [1.5, -3.0, lowest], [0, -1e4, 0]]
    others = [[0.0, -3.0], [-5000.0, -7000.0], [1e9, 0], [6e4, -6e4], [torch.inf, 0], [torch.nan, -1e9], [-torch.inf]]
    assert [is_mask(value_of(torch.tensor(numbers))) for numbers in masks] == [True] * len(masks)
    assert [is_mask(value_of(torch.tensor(numbers))) for numbers in others] == [False] * len(others)
