"""A safetensors file that is written tensor by tensor."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fxdebug.stats.cpu_sums import memory_of

STREAM_FROM_BYTES = 1024 * 1024  # bytes after which a file is begun before all of it is known
RESERVED_HEADER_BYTES = 32 * 1024  # bytes for its table of contents

DTYPE_NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, while somebody holds it; torch's own ``numpy()`` fixes its size."""
    size = tensor.nbytes
    return memoryview(memory_of(tensor)).cast("B")[:size] if size else memoryview(b"")


class SafetensorsWriter:
    """One safetensors file, written as its tensors come.

    The table of contents stands at the front and is known at the end: a file that grows beyond ``streamed`` bytes
    leaves room for it. What has no multiple of 8 bytes comes last: elsewhere it would push the others off their
    alignment.
    """

    def __init__(self, path: Path, metadata: Mapping[str, str], streamed: int = STREAM_FROM_BYTES) -> None:
        self.path = path
        self._streamed = streamed
        self.waiting = 0  # bytes that are not written yet
        self.end = 0
        self._early: list[tuple[str, Tensor]] = []  # what came before the file was begun
        self._odd: list[tuple[str, Tensor]] = []
        self._entries = ['"__metadata__":' + json.dumps(dict(metadata))]
        self._table = 64  # bytes, at least
        self._reserved = 0
        self._file: Any = None

    def has_room(self, parts: Mapping[str, Tensor]) -> bool:
        """Is there room left for the names, shapes and places of these?"""
        return not self._reserved or self._table + sum(map(_largest_entry, parts, parts.values())) <= self._reserved

    def add(self, name: str, tensor: Tensor) -> list[Tensor]:
        """Take a tensor; return those that are in the file by now and not needed any more."""
        self._table += _largest_entry(name, tensor)
        self.waiting += tensor.nbytes
        if tensor.nbytes % 8:
            self._odd.append((name, tensor))
            return []
        self._early.append((name, tensor))
        if self.end + self.waiting < self._streamed:
            return []
        if not self._reserved:
            self._begin(max(RESERVED_HEADER_BYTES, 2 * self._table))
        return self._written()

    def close(self) -> list[Tensor]:
        """Write what is left, and the table of contents; return what was written."""
        self._early += sorted(self._odd, key=lambda odd: -odd[1].element_size())
        if not self._reserved:
            self._begin(self._table)
        written = self._written()
        whole = _header(self._entries, self._reserved - 8)
        _write_at_the_start(self._file, whole)
        self._file.close()
        return written

    def abandon(self) -> None:
        """Leave it as it is."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _begin(self, reserved: int) -> None:
        self._reserved = reserved + -reserved % 8
        self._file = self.path.open("wb", buffering=0)
        self._file.seek(self._reserved)

    def _written(self) -> list[Tensor]:
        for name, tensor in self._early:
            body = bytes_of(tensor)
            start, self.end = self.end, self.end + len(body)
            self._entries.append(_entry(name, DTYPE_NAMES[tensor.dtype], tensor.shape, start, self.end))
            _write(self._file, body)
            self.waiting -= len(body)
        written, self._early = [tensor for _, tensor in self._early], []
        return written


def _largest_entry(name: str, tensor: Tensor) -> int:
    """Bytes that an entry takes at most."""
    return len(json.dumps(name)) + 21 * (tensor.dim() + 2) + 60


def _write_at_the_start(file: Any, data: bytes) -> None:
    file.seek(0)
    _write(file, data)


def _entry(name: str, dtype: str, shape: Sequence[int], start: int, end: int) -> str:
    sizes = ",".join(map(str, shape))
    return f'{json.dumps(name)}:{{"dtype":"{dtype}","shape":[{sizes}],"data_offsets":[{start},{end}]}}'


@functools.lru_cache(maxsize=1024)
def _header_of_single(dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    return _header([_entry("data", dtype, shape, 0, size)])


def _header(entries: list[str], room: int | None = None) -> bytes:
    """The length of the table of contents, and the table, filled up with blanks to ``room`` bytes."""
    table = ("{" + ",".join(entries) + "}").encode()
    table = table.ljust(-len(table) % 8 + len(table) if room is None else room)
    return len(table).to_bytes(8, "little") + table


_writev: Callable[[int, Any], int] | None = getattr(os, "writev", None)  # Windows has none


def _write(file: Any, *parts: memoryview | bytes) -> None:
    """Write these one after the other, in one piece where the system can. It takes at most 2 GB at a time."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        done = file.write(left[0]) if len(left) < 2 or _writev is None else _writev(file.fileno(), left)
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if left:
            left[0] = left[0][done:]


def write_single_tensor(file: io.FileIO, tensor: Tensor) -> None:
    """Make an empty file one with a tensor, ``data``: byte for byte as ``safetensors.torch.save_file`` writes it."""
    _write(file, _header_of_single(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), tensor.nbytes), bytes_of(tensor))
