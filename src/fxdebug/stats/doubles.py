"""float64 where a device has none: on Apple's GPUs (MPS) and some of Intel's, a cast to it raises."""

from __future__ import annotations

import torch
from torch import Tensor

HAVE_THEM = frozenset(("cpu", "cuda", "meta"))  # devices that all have float64


def where_doubles(tensor: Tensor) -> Tensor:
    """Return a tensor, on the CPU if its device may have no float64: it is cast there, and not before it is moved.

    >>> where_doubles(torch.ones(2)).double()
    tensor([1., 1.], dtype=torch.float64)
    """
    return tensor if tensor.device.type in HAVE_THEM else tensor.cpu()


def widest_on(device: torch.device) -> torch.dtype:
    """Return the widest real dtype that a device has for certain."""
    return torch.float64 if device.type in HAVE_THEM else torch.float32
