"""Look at what a run is given: padding of the inputs, subnormal weights, threads and cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, named_tensors
from fxdebug.features.profile.wasted.settings import HEADROOM, SMALLEST, Padded, Surroundings

MANY = 0.01  # of the numbers of a parameter are subnormal: fewer cost nothing


def surroundings(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], device: torch.device, has_loss: bool
) -> Surroundings:
    """Return what a run is given besides the operations of the model."""
    if device.type == "meta":
        return Surroundings(device="meta", has_loss=has_loss)
    named = [(name, tensor) for path, module in members.named_modules_of(model) for name, tensor in _own(path, module)]
    return Surroundings(
        device=device.type,
        threads=torch.get_num_threads(),
        cores=cores(),
        has_loss=has_loss,
        padded=tuple(padded_inputs(args, kwargs)),
        subnormal=tuple([name for name, tensor in named if _is_subnormal(tensor)]) if device.type == "cpu" else (),
    )


def _own(path: str, module: nn.Module) -> list[tuple[str, Tensor]]:
    registries = (module._parameters, module._buffers)
    return [
        (f"{path}.{name}" if path else name, tensor)
        for registry in registries
        for name, tensor in registry.items()
        if tensor is not None
    ]


def cores() -> int:
    """Return the processor cores that this process may use: by its affinity and by the quota of its group."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(usable, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such group, or no quota
        return usable


def _is_subnormal(tensor: Tensor) -> bool:
    try:
        if tensor.dtype is not torch.float32 or tensor.layout is not torch.strided or not tensor.numel():
            return False
        with torch.no_grad():
            size = tensor.detach().abs()
            return ((size > 0) & (size < SMALLEST)).sum().item() > MANY * tensor.numel()
    except Exception:  # a tensor of a class of its own, or without memory
        return False


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
