"""Checksums of tensor data: they reveal writes that move no version, such as writes through ``.data``."""

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
from fxdebug.stats.cpu_sums import array_of, compiled_checksum_of, is_freed, memory_of

Checksum = tuple[Any, ...]
Reader = Callable[[], Checksum]
"""Compute the checksum of one tensor's memory, from the address where it was when the reader was made."""

_sum = np.add.reduce


def is_uninitialised(tensor: Tensor) -> bool:
    """Is it a lazy parameter or buffer that has no shape yet?"""
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def reader_of(tensor: Tensor) -> Reader | None:
    """Return the reader of a dense CPU tensor, bound to its present address; ``None`` for all other tensors.

    The checksum is the sum of the elements and the sum of their bits. A write to one element always changes the second
    sum. A change that leaves both sums alone (elements that swap places) leaves the statistics alone, too. A reader
    does not keep the memory alive.
    """
    if type(tensor) not in PLAIN or not tensor.is_cpu or tensor.layout is not torch.strided:
        return None
    count = tensor.numel()
    dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    if not count or not dense or tensor.is_neg() or tensor.is_conj() or is_freed(tensor):
        return None
    compiled = compiled_checksum_of(tensor.dtype)
    if compiled is not None:
        return functools.partial(_compiled_checksum, compiled, tensor.data_ptr(), count)
    size = count * tensor.element_size()
    memory = np.frombuffer(memory_of(tensor), np.uint8, size)
    arrays: list[np.ndarray] = [memory.view(np.uint64) if size % 8 == 0 and tensor.data_ptr() % 8 == 0 else memory]
    if tensor.dtype in (torch.float32, torch.float64) and tensor.data_ptr() % 8 == 0:
        arrays.append(memory.view(np.float32 if tensor.dtype is torch.float32 else np.float64))
    return functools.partial(_numpy_checksum, arrays)


def _compiled_checksum(compiled: Callable[[int, int], bytes], address: int, count: int) -> Checksum:
    return (compiled(address, count),)


def _numpy_checksum(arrays: list[np.ndarray]) -> Checksum:
    return tuple([_sum(array).tobytes() for array in arrays])  # as bytes, so that NaN equals NaN


def checksum_of(tensor: Tensor, reader: Reader | None) -> Checksum | None:
    """Return the checksum of a tensor, by its reader if it has one; ``None`` where the data cannot be read."""
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
        return None  # quantised, nested, …: only its version tells of writes
