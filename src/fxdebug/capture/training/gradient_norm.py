"""The 2-norm of all gradients of a model, also where some are distributed over ranks and others are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from fxdebug.capture.tensors.special_tensors import local_part
from fxdebug.capture.torch_state.untracked import untracked


def norm_of_all(gradients: Sequence[Tensor]) -> float:
    """Return the 2-norm of all gradients together, of all ranks that share them, also where its square overflows.

    Ranks that share gradients call this together: torch sums the squares of the parts over each mesh.
    """
    groups: dict[Any, list[Tensor]] = {}  # by mesh: torch takes no norm over several, or over none and one
    for gradient in gradients:
        groups.setdefault(gradient.device_mesh if isinstance(gradient, DTensor) else None, []).append(gradient)
    return math.hypot(*[_norm(group) for group in groups.values()])


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
    norm = number_of(torch.nn.utils.get_total_norm(gradients))
    if not math.isinf(norm) or any(isinstance(gradient, DTensor) for gradient in gradients):
        return norm
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):
        return norm
    largest = max(float(gradient.abs().max()) for gradient in gradients if gradient.numel())
    return largest * number_of(torch.nn.utils.get_total_norm([gradient / largest for gradient in gradients]))
