"""Something short that differs when a tensor's data does: versions do not tell of writes through ``.data``."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.describe import PLAIN, looks
from fxdebug.stats import array_of, is_freed, memory_of

Mark = tuple[Any, ...]
Arrays = tuple[np.ndarray, ...]

_added = np.add.reduce


def is_uninitialised(tensor: Tensor) -> bool:
    """Is it a lazy parameter or buffer that has no shape yet?"""
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def arrays_of(tensor: Tensor) -> Arrays | None:
    """The memory of a dense tensor in the CPU as whole numbers and, if they are that, as floats; it is not kept alive.

    ``None`` for all others.
    """
    if type(tensor) not in PLAIN or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return None
    size = tensor.numel() * tensor.element_size()
    dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    if not size or not dense or tensor.is_neg() or tensor.is_conj() or is_freed(tensor):
        return None
    memory = np.frombuffer(memory_of(tensor), np.uint8, size)
    whole = memory.view(np.uint64) if size % 8 == 0 and tensor.data_ptr() % 8 == 0 else memory
    if tensor.dtype in (torch.float32, torch.float64) and tensor.data_ptr() % 8 == 0:
        return whole, memory.view(np.float32 if tensor.dtype is torch.float32 else np.float64)
    return (whole,)


def mark_of(tensor: Tensor, arrays: Arrays | None) -> Mark | None:
    """The mark of a tensor, of which these are the arrays; ``None`` where it cannot be had.

    Sums of the elements and of their bits: a write of one element always moves the second, and one that
    leaves both alone (elements change places) leaves the statistics alone, too.
    """
    if arrays is not None:
        return tuple([_added(array).tobytes() for array in arrays])  # as bytes: NaN is equal to NaN
    if is_uninitialised(tensor):
        return None
    try:
        body = tensor if type(tensor) in PLAIN else looks(tensor).body
        if body is None or body.layout is not torch.strided or body.is_meta or is_freed(body):
            return None
        if body.device.type == "cpu":
            return (zlib.crc32(array_of(body.detach().contiguous().view(-1).view(torch.uint8)).data),)
        return int(torch.hash_tensor(body)), str(float(body.sum(dtype=torch.float64)))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # quantised, nested, …: the version must do
