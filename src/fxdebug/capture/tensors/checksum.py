"""Something short that differs when a tensor's data does: versions do not tell of writes through ``.data``."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.tensors.describe import description_of
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.stats.cpu_sums import array_of, is_freed, marking_of, memory_of

Checksum = tuple[Any, ...]
Reader = Callable[[], Checksum]

_added = np.add.reduce


def is_uninitialised(tensor: Tensor) -> bool:
    """Is it a lazy parameter or buffer that has no shape yet?"""
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def reader_of(tensor: Tensor) -> Reader | None:
    """What makes the mark of a dense tensor in the CPU, from where its memory is now; it keeps none of it alive.

    Sums of the elements and of their bits: a write of one element always moves the second, and one that
    leaves both alone (elements change places) leaves the statistics alone, too. ``None`` for all other tensors.
    """
    if type(tensor) not in PLAIN or not tensor.is_cpu or tensor.layout is not torch.strided:
        return None
    count = tensor.numel()
    dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    if not count or not dense or tensor.is_neg() or tensor.is_conj() or is_freed(tensor):
        return None
    marking = marking_of(tensor.dtype)
    if marking is not None:
        return functools.partial(_marked, marking, tensor.data_ptr(), count)
    size = count * tensor.element_size()
    memory = np.frombuffer(memory_of(tensor), np.uint8, size)
    arrays: list[np.ndarray] = [memory.view(np.uint64) if size % 8 == 0 and tensor.data_ptr() % 8 == 0 else memory]
    if tensor.dtype in (torch.float32, torch.float64) and tensor.data_ptr() % 8 == 0:
        arrays.append(memory.view(np.float32 if tensor.dtype is torch.float32 else np.float64))
    return functools.partial(_added_up, arrays)


def _marked(marking: Callable[[int, int], bytes], address: int, count: int) -> Checksum:
    return (marking(address, count),)


def _added_up(arrays: list[np.ndarray]) -> Checksum:
    return tuple([_added(array).tobytes() for array in arrays])  # as bytes: NaN is equal to NaN


def checksum_of(tensor: Tensor, reader: Reader | None) -> Checksum | None:
    """The mark of a tensor, made by its reader where it has one; ``None`` where it cannot be had."""
    if reader is not None:
        return reader()
    if is_uninitialised(tensor):
        return None
    try:
        body = tensor if type(tensor) in PLAIN else description_of(tensor).body
        if body is None or body.layout is not torch.strided or body.is_meta or is_freed(body):
            return None
        if body.device.type == "cpu":
            return (zlib.crc32(array_of(body.detach().contiguous().view(-1).view(torch.uint8)).data),)
        return int(torch.hash_tensor(body)), str(float(body.sum(dtype=torch.float64)))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # quantised, nested, …: the version must do
