"""Inputs of another batch size or dtype, made of given ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def batch_of(inputs: Any) -> int | None:
    """Return the first size of the first tensor among inputs that has one: the batch, in most models.

    >>> batch_of(((torch.ones(3, 2),), {})), batch_of(((7,), {}))
    (3, None)
    """
    found: list[int] = []
    _mapped(inputs, lambda tensor: found.append(tensor.shape[0]) if tensor.dim() else None)
    return found[0] if found else None


def with_batch(inputs: Any, batch: int, to: int) -> Any:
    """Return inputs whose tensors with ``batch`` as first size have ``to`` items, the given ones in turn.

    >>> with_batch([torch.arange(2), "text"], 2, 3)
    [tensor([0, 1, 0]), 'text']
    """

    def resized(tensor: Tensor) -> Tensor:
        if not tensor.dim() or tensor.shape[0] != batch:
            return tensor
        return tensor.index_select(0, torch.arange(to, device=tensor.device) % batch)

    return _mapped(inputs, resized)


def with_dtype(inputs: Any, dtype: torch.dtype) -> Any:
    """Return inputs whose floating tensors have another dtype."""
    return _mapped(inputs, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _mapped(content: Any, function: Callable[[Tensor], Any]) -> Any:
    """Return plain containers with a function applied to the tensors in them; other objects as they are."""
    if isinstance(content, Tensor):
        return function(content)
    if type(content) in (list, tuple):
        return type(content)([_mapped(item, function) for item in content])
    if isinstance(content, Mapping) and type(content) is dict:
        return {name: _mapped(item, function) for name, item in content.items()}
    return content
