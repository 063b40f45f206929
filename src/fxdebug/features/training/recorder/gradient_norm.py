"""The 2-norm of all gradients of a model, also where some are distributed over ranks and others are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import all_reduce
from torch.distributed.tensor import DTensor, Replicate

from fxdebug.capture.tensors.special_tensors import local_part
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.stats.measure import elements_of


def norm_of_all(gradients: Sequence[Tensor]) -> float:
    """Return the 2-norm of all gradients together, of all ranks that share them, also where its square overflows.

    Ranks that share gradients call this together: squares of norms are summed once over each dimension of a mesh along
    which a gradient is split.
    """
    groups: dict[Any, list[Tensor]] = {}  # by mesh and placements
    for gradient in gradients:
        whole = _without_partial_sums(gradient) if isinstance(gradient, DTensor) else gradient
        key = (whole.device_mesh, whole.placements) if isinstance(whole, DTensor) else None
        groups.setdefault(key, []).append(local_part(whole))
    squares = {key: _norm(group) ** 2 for key, group in groups.items()}
    for mesh in dict.fromkeys(key[0] for key in squares if key is not None):
        for dimension in range(mesh.ndim):
            split = [key for key in squares if key and key[0] == mesh and not key[1][dimension].is_replicate()]
            if split:
                with untracked():
                    sums = torch.tensor([squares[key] for key in split], dtype=torch.float64, device=mesh.device_type)
                    all_reduce(sums, group=mesh.get_group(dimension))
                squares |= zip(split, sums.tolist())
    return math.sqrt(sum(squares.values()))


def _without_partial_sums(gradient: DTensor) -> DTensor:
    """Return a gradient with the terms that each rank has of a sum added up."""
    placements = [Replicate() if one.is_partial() else one for one in gradient.placements]
    return gradient if placements == list(gradient.placements) else gradient.redistribute(placements=placements)


def norm_of_parts(gradients: Sequence[Tensor]) -> float:
    """Return the 2-norm of this rank's parts of all gradients."""
    return _norm([local_part(gradient) for gradient in gradients])


def number_of(tensor: Tensor) -> float:
    """Return the number that a tensor of one element has; of a distributed one, that of all ranks together."""
    with untracked():
        tensor = tensor.detach()
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        value: complex | float = whole.reshape(()).item()
    return abs(value) if isinstance(value, complex) else float(value)


def _norm(gradients: Sequence[Tensor]) -> float:
    if any(gradient.layout is not torch.strided for gradient in gradients):  # torch takes none of sparse ones
        gradients = [elements_of(gradient) for gradient in gradients]
    norm = number_of(torch.nn.utils.get_total_norm(gradients))
    if not math.isinf(norm) or not all(bool(gradient.isfinite().all()) for gradient in gradients):
        return norm
    largest = max(float(gradient.abs().max()) for gradient in gradients if gradient.numel())
    return largest * number_of(torch.nn.utils.get_total_norm([gradient / largest for gradient in gradients]))
