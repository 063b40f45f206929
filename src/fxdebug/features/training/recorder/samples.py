"""256 elements spread over each tensor: enough to tell updates and gradients apart, at a thousandth of their cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fxdebug.capture.tensors.special_tensors import local_part

SAMPLE = 256


def sample(tensor: Tensor, most: int = SAMPLE) -> Tensor:
    """Return at most ``most`` elements of a tensor, evenly spread over it; a view where that is possible."""
    part = local_part(tensor).detach()
    if part.layout is not torch.strided:
        part = part.coalesce().values() if part.layout is torch.sparse_coo else part.to_dense()
    flat = part.reshape(-1)
    return flat if flat.numel() <= most else flat[:: flat.numel() // most][:most]


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return samples as one vector of float32 on the device of the first; complex numbers as pairs."""
    parts = [torch.view_as_real(one).reshape(-1) if one.is_complex() else one for one in tensors]
    return torch.cat([one.to(parts[0].device, torch.float32) for one in parts])


def digest_of(tensors: Iterable[Tensor]) -> str:
    """Return eight letters that tell inputs apart."""
    found = hashlib.blake2b(digest_size=4)
    for one in tensors:
        with_data = sample(one)
        found.update(str(tuple(one.shape)).encode())
        found.update(with_data.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def short(number: float | None) -> float | None:
    """Return a number with four digits: lines of a training are kept short."""
    return None if number is None else float(f"{number:.4g}")
