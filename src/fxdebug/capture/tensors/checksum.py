"""Checksums of tensor data: they reveal writes that move no version, such as writes through ``.data``."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fxdebug.capture.tensors.special_tensors import PLAIN, description_of, is_uninitialised
from fxdebug.native.dispatch import natively
from fxdebug.stats.accelerator import captures_graph
from fxdebug.stats.cpu_sums import array_of, is_freed, memory_at
from fxdebug.stats.doubles import widest_on

Checksum = bytes | tuple[Any, ...]

_COLUMNS = 61  # a prime: rows of any usual length that change places change the columns


class Reader(NamedTuple):
    """Computes the checksum of one tensor's memory, from the address where it was when the reader was made."""

    address: int
    size: int  # in bytes

    def __call__(self) -> Checksum:
        """Return the checksum of the memory as it is now."""
        return checksum_of_memory(self.address, self.size)


def reader_of(tensor: Tensor) -> Reader | None:
    """Return the reader of a dense CPU tensor, bound to its present address; ``None`` for all other tensors.

    A write to one element always changes the checksum; elements that swap places do so unless their distance is a
    multiple of 488 bytes. A reader does not keep the memory alive.
    """
    if type(tensor) not in PLAIN or not tensor.is_cpu or tensor.layout is not torch.strided:
        return None
    count = tensor.numel()
    dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    if not count or not dense or tensor.is_neg() or tensor.is_conj() or is_freed(tensor):
        return None
    return Reader(tensor.data_ptr(), count * tensor.element_size())


_NO_ROWS = bytes(8 * _COLUMNS)


@natively("checksum")
def checksum_of_memory(address: int, size: int) -> bytes:
    """Return the checksum of ``size`` bytes, which the caller knows to be there.

    Memory is read as rows of 61 words of 64 bits. The checksum has the sums of the columns modulo 2**64, and then the
    bytes that fill no row.
    """
    memory = np.frombuffer(memory_at(address), np.uint8, size)
    if size < 8 * _COLUMNS:
        return _NO_ROWS + memory.tobytes()
    whole = size - size % (8 * _COLUMNS)
    rows = memory[:whole].view(np.uint64).reshape(-1, _COLUMNS)
    return np.add.reduce(rows, axis=0).tobytes() + memory[whole:].tobytes()


@natively("checksums")
def checksums_of_memory(readers: list[Reader | None]) -> list[Checksum | None]:
    """Return the checksum of each memory; ``None`` where there is no reader."""
    return [None if reader is None else checksum_of_memory(*reader) for reader in readers]


def checksum_of(tensor: Tensor, reader: Reader | None) -> Checksum | None:
    """Return the checksum of a tensor, by its reader if it has one; ``None`` where the data cannot be read."""
    return checksums_without_reader([tensor])[0] if reader is None else reader()


def checksums_without_reader(tensors: Sequence[Tensor]) -> list[Checksum | None]:
    """Return the checksum of each tensor, ``None`` where the data cannot be read; wait for each accelerator once."""
    checksums: list[Checksum | None] = [None] * len(tensors)
    elsewhere: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for position, tensor in enumerate(tensors):
        if is_uninitialised(tensor):
            continue
        try:
            body = tensor if type(tensor) in PLAIN else description_of(tensor).body
            if body is None or body.layout is not torch.strided or body.is_meta or is_freed(body):
                continue
            if body.device.type == "cpu":
                checksums[position] = (
                    zlib.crc32(array_of(body.detach().contiguous().view(-1).view(torch.uint8)).data),
                )
            elif not captures_graph():
                elsewhere.setdefault(body.device, []).append((position, _sums_on_device(body)))
        except _UNREADABLE:
            continue  # quantised, nested, …: only its version tells of writes
    for found in elsewhere.values():
        try:
            rows = torch.stack([sums for _, sums in found]).tolist()
        except _UNREADABLE:  # the device is lost
            continue
        for (position, _), row in zip(found, rows):
            checksums[position] = tuple(row)
    return checksums


_UNREADABLE = (RuntimeError, NotImplementedError, TypeError, ValueError)


def _sums_on_device(body: Tensor) -> Tensor:
    """Return the hash of a tensor's elements and the bits of their sum, on its device."""
    total = body.sum(dtype=widest_on(body.device))
    bits = total.view(torch.int64 if total.dtype is torch.float64 else torch.int32)
    return torch.stack([torch.hash_tensor(body).view(torch.int64), bits.to(torch.int64)])
