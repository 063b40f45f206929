"""Find inputs whose last steps are padding in every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import named_tensors
from fxdebug.features.shared.records.padded import Padded

HEADROOM = 0.9  # of the padded length: trimming less is not worth it


def padded_inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Padded]:
    """Return the inputs whose last steps hold nothing in any row: a mask of zeros, or one and the same filling.

    Where there is a mask of zeros and ones, it alone tells.

    >>> padded_inputs((torch.tensor([[5, 7, 0, 0], [3, 0, 0, 0]]),), {})
    [Padded(slot='args[0]', length=4, longest=2)]
    """
    found = []
    given = {**{f"args[{i}]": one for i, one in enumerate(args)}, **kwargs}
    named = [(slot + name, tensor) for slot, one in given.items() for name, tensor in named_tensors(one)]
    for name, tensor in named:
        if tensor.dim() < 2 or tensor.shape[1] < 4 or tensor.layout is not torch.strided or tensor.is_meta:
            continue
        try:
            longest = _longest(tensor.detach())
        except Exception:  # an operation that this kind of tensor does not have
            continue
        if longest is not None:
            found.append((_is_mask(tensor), Padded(name, tensor.shape[1], longest)))
    masks = [one for is_mask, one in found if is_mask]
    return [one for one in masks or [one for _, one in found] if one.longest < HEADROOM * one.length]


def _is_mask(tensor: Tensor) -> bool:
    if tensor.dim() != 2:
        return False
    return tensor.dtype is torch.bool or bool(((tensor == 0) | (tensor == 1)).all())


def _longest(tensor: Tensor) -> int | None:
    """Return the steps until the last one that holds something; ``None`` where nothing is told by it."""
    if tensor.is_floating_point():
        filling = torch.zeros((), dtype=tensor.dtype, device=tensor.device)
        if tensor.dim() == 2 and not _is_mask(tensor):
            return None  # features of a row, not steps
        if tensor.dim() > 3:
            return None  # pictures: their second dimension is the channels
    else:
        filling = tensor[0, -1] if tensor.dim() == 2 else tensor.new_zeros(())
    if tensor.dim() == 2 and _is_mask(tensor):
        filling = torch.zeros_like(filling)
    used = (tensor != filling).flatten(2).any(-1) if tensor.dim() > 2 else tensor != filling
    steps = used.any(0).nonzero()
    return int(steps.max()) + 1 if len(steps) else None
