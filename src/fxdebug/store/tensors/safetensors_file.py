"""The writer of a safetensors file, tensor by tensor."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fxdebug.stats.cpu_sums import memory_of

STREAM_FROM_BYTES = 1024 * 1024  # a file of this size is begun before all its tensors are known
RESERVED_HEADER_BYTES = 32 * 1024  # left free for the header of such a file

DTYPE_NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
if hasattr(torch, "float8_e8m0fnu"):  # from torch 2.7 on
    DTYPE_NAMES[torch.float8_e8m0fnu] = "F8_E8M0"


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor, valid while the tensor lives.

    torch's own ``numpy()`` would do, but it makes the storage no longer resizable.
    """
    size = tensor.nbytes
    return memoryview(memory_of(tensor)).cast("B")[:size] if size else memoryview(b"")


class SafetensorsWriter:
    """Write one safetensors file, with its tensors in the order in which they are added.

    The header comes first in the file but is known last: a file that grows beyond ``stream_from`` bytes leaves room
    for it. Tensors whose size is no multiple of 8 bytes come last, because they would misalign the tensors after them.
    """

    def __init__(self, path: Path, metadata: Mapping[str, str], stream_from: int = STREAM_FROM_BYTES) -> None:
        self.path = path
        self.waiting = 0  # bytes that are not written yet
        self.end = 0  # bytes of data that are written
        self._stream_from = stream_from
        self._pending: list[tuple[str, Tensor]] = []
        self._unaligned: list[tuple[str, Tensor]] = []  # tensors for the end of the file
        self._entries = ['"__metadata__":' + json.dumps(dict(metadata))]
        self._header_bytes = 64  # at most, as far as the tensors are known
        self._reserved = 0
        self._file: Any = None

    def has_room(self, parts: Mapping[str, Tensor]) -> bool:
        """Is there room in the header for the entries of these tensors?"""
        if not self._reserved:
            return True
        return self._header_bytes + sum(map(_largest_entry, parts, parts.values())) <= self._reserved

    def add(self, name: str, tensor: Tensor) -> list[Tensor]:
        """Add a tensor; return the tensors that were written meanwhile and are no longer needed."""
        self._header_bytes += _largest_entry(name, tensor)
        self.waiting += tensor.nbytes
        if tensor.nbytes % 8:
            self._unaligned.append((name, tensor))
            return []
        self._pending.append((name, tensor))
        if self.end + self.waiting < self._stream_from:
            return []
        if not self._reserved:
            self._begin(max(RESERVED_HEADER_BYTES, 2 * self._header_bytes))
        return self._write_pending()

    def add_pieces(self, name: str, dtype: torch.dtype, shape: Sequence[int], pieces: Iterable[Tensor]) -> None:
        """Write the only tensor of the file now, piece by piece."""
        self._begin(self._header_bytes + _most_of_entry(name, len(shape)))
        for piece in pieces:
            body = bytes_of(piece)
            _write(self._file, body)
            self.end += len(body)
        self._entries.append(_entry(name, DTYPE_NAMES[dtype], shape, 0, self.end))

    def close(self) -> list[Tensor]:
        """Write the remaining tensors and the header; return the tensors that were written."""
        self._pending += sorted(self._unaligned, key=lambda named: -named[1].element_size())
        if not self._reserved:
            self._begin(self._header_bytes)
        written = self._write_pending()
        _write_at_start(self._file, _header(self._entries, self._reserved - 8))
        self._file.close()
        return written

    def abandon(self) -> None:
        """Close the file without completing it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _begin(self, reserved: int) -> None:
        self._reserved = reserved + -reserved % 8
        self._file = self.path.open("wb", buffering=0)
        self._file.seek(self._reserved)

    def _write_pending(self) -> list[Tensor]:
        for name, tensor in self._pending:
            body = bytes_of(tensor)
            start, self.end = self.end, self.end + len(body)
            self._entries.append(_entry(name, DTYPE_NAMES[tensor.dtype], tensor.shape, start, self.end))
            _write(self._file, body)
            self.waiting -= len(body)
        written, self._pending = [tensor for _, tensor in self._pending], []
        return written


def _largest_entry(name: str, tensor: Tensor) -> int:
    """Return the most bytes that the header's entry of a tensor can take."""
    return _most_of_entry(name, tensor.dim())


def _most_of_entry(name: str, dimensions: int) -> int:
    return len(json.dumps(name)) + 21 * (dimensions + 2) + 60


def _write_at_start(file: Any, data: bytes) -> None:
    file.seek(0)
    _write(file, data)


def _entry(name: str, dtype: str, shape: Sequence[int], start: int, end: int) -> str:
    sizes = ",".join(map(str, shape))
    return f'{json.dumps(name)}:{{"dtype":"{dtype}","shape":[{sizes}],"data_offsets":[{start},{end}]}}'


@functools.lru_cache(maxsize=1024)
def _header_of_single(dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    return _header([_entry("data", dtype, shape, 0, size)])


def _header(entries: list[str], room: int | None = None) -> bytes:
    """Return the header and its length before it, padded with blanks to ``room`` bytes or a multiple of 8."""
    header = ("{" + ",".join(entries) + "}").encode()
    header = header.ljust(-len(header) % 8 + len(header) if room is None else room)
    return len(header).to_bytes(8, "little") + header


_writev: Callable[[int, Any], int] | None = getattr(os, "writev", None)  # Windows has none


def _write(file: Any, *parts: memoryview | bytes) -> None:
    """Write the parts one after the other, in one system call where possible; a call takes at most 2 GB."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        done = file.write(left[0]) if len(left) < 2 or _writev is None else _writev(file.fileno(), left)
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if left:
            left[0] = left[0][done:]


def write_single_tensor(file: io.FileIO, tensor: Tensor) -> None:
    """Write a tensor named ``data`` to an empty file, byte for byte as ``safetensors.torch.save_file`` does."""
    _write(file, _header_of_single(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), tensor.nbytes), bytes_of(tensor))
