"""The 2-norm of all gradients of a model, also where some are distributed over ranks and others are not.

It reads them all, which takes as long as memory gives them: 2 % of a step of a GPT-2 with few tokens. Of large models
it is not taken in each step; whether all are finite is known in each, see :class:`Edges`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch
from torch import Tensor
from torch.distributed import all_reduce
from torch.distributed.tensor import DTensor, Replicate

from fxdebug.capture.probe import special_tensors, untracked
from fxdebug.stats.measure import elements_of

LARGE = 1 << 18  # elements of one matrix
MANY = 1 << 22  # elements of all large ones: fewer are read within a millisecond or two
FIRST = 64  # steps whose norm is always taken
OFTEN = 10  # steps between two norms later on
GROWS = 3.0  # times the norm of the edges when the whole norm was taken last
_DTYPES = (torch.float32, torch.bfloat16, torch.float64)  # a sum overflows in float16


class Edges:
    """Tells in which steps the norm of all gradients is to be taken, from the edges of large matrices in the others.

    A weight that is only multiplied with, or only looked up, has a gradient that sums products of two vectors: a factor
    that is not finite spoils a whole row, or a whole column. So the first row and the first column show it.
    """

    def __init__(self) -> None:
        self._last = math.nan  # norm of the edges, when that of everything was taken

    def ask_for_all(self, number: int, parameters: Iterable[Tensor], products: Set[int]) -> bool:
        """Is the norm of all gradients to be taken in this step? ``products`` are ids of weights as above."""
        large, rest = list[Tensor](), list[Tensor]()
        for p in parameters:
            if p.grad is not None:
                (large if id(p) in products and _is_large(p.grad) else rest).append(p.grad.detach())
        if sum(gradient.numel() for gradient in large) < MANY:
            return True
        edges = _norm([*rest, *(edge for gradient in large for edge in (gradient[0], gradient[:, 0]))])
        is_usual = edges <= GROWS * self._last  # False for NaN
        if is_usual and number >= FIRST and number % OFTEN:
            return False
        self._last = edges
        return True


def _is_large(gradient: Tensor) -> bool:
    is_plain = type(gradient) is Tensor and gradient.layout is torch.strided and gradient.dtype in _DTYPES
    return is_plain and gradient.dim() == 2 and gradient.numel() >= LARGE


def norm_of_all(gradients: Sequence[Tensor]) -> float:
    """Return the 2-norm of all gradients together, of all ranks that share them, also where its square overflows.

    Ranks that share gradients call this together: squares of norms are summed once over each dimension of a mesh along
    which a gradient is split.
    """
    groups: dict[Any, list[Tensor]] = {}  # by mesh and placements
    for gradient in gradients:
        whole = _without_partial_sums(gradient) if isinstance(gradient, DTensor) else gradient
        key = (whole.device_mesh, whole.placements) if isinstance(whole, DTensor) else None
        groups.setdefault(key, []).append(special_tensors.local_part(whole))
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
    return _norm([special_tensors.local_part(gradient) for gradient in gradients])


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
