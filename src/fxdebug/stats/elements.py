"""The elements of a tensor of any layout as one row: those of a nested tensor, with the zeros of a sparse one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who reads a run without its tensors needs no torch
    from torch import Tensor

MOST_IMPLICIT = 1 << 28  # elements of a sparse tensor that are written out: its shape may claim any number


def elements(tensor: Tensor) -> Tensor:
    """Return all elements of a tensor in one dimension. Raises ``ValueError`` for one that has no such row.

    >>> import torch
    >>> elements(torch.eye(2).to_sparse())
    tensor([1., 0., 0., 1.])
    """
    import torch

    body = tensor.detach()
    if body.is_nested:
        parts = [part.reshape(-1) for part in body.unbind()]
        return torch.cat(parts) if parts else torch.empty(0, dtype=body.dtype)
    if body.is_quantized:
        body = body.dequantize()
    if body.layout is not torch.strided:
        if math.prod(body.shape) > MOST_IMPLICIT:
            raise ValueError(
                f"a sparse tensor of {math.prod(body.shape)} elements: more than {MOST_IMPLICIT} are not read"
            )
        body = body.to_dense()
    return body.reshape(-1)


def is_dense(tensor: Tensor) -> bool:
    """Has a tensor rows and columns in memory: is it neither sparse nor nested nor quantised?"""
    return str(tensor.layout) == "torch.strided" and not (tensor.is_nested or tensor.is_quantized)
