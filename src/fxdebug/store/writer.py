"""A thread that writes while the model computes, and the memory in which data waits for it."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fxdebug.stats import memory_of

KEPT = 64 * 1024 * 1024  # bytes of memory that stay for the next copies
_SMALL = 64 * 1024  # bytes up to which memory is had faster than it is looked for
STREAMED = 1024 * 1024  # bytes after which a file is begun before all of it is known
RESERVED = 32 * 1024  # bytes for its table of contents

NAMES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
if hasattr(torch, "float8_e8m0fnu"):  # from torch 2.7 on
    NAMES[torch.float8_e8m0fnu] = "F8_E8M0"


class Writer:
    """Does what it is given, in order, in a thread of its own, with at most ``budget`` bytes waiting.

    Nothing that the disk does reaches who gives: the first error is kept as ``error``, and the rest is left undone.
    """

    def __init__(self, budget: int) -> None:
        self.error: BaseException | None = None
        self._budget = budget
        self._waiting = 0
        self._room = threading.Condition()
        self._queue: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="fxdebug-writer", daemon=True)
        try:
            self._thread.start()  # before the run: in a call it would be taken for a thread that the model starts
        except BaseException:  # an interrupt, while it begins
            self.stop()
            raise

    def put(self, size: int, step: Callable[..., None], *args: Any) -> None:
        """Do this soon; ``size`` bytes wait for :meth:`release`. Waits while more than the budget do."""
        if self.error is not None:
            return
        with self._room:
            self._waiting += size
        self._queue.put((step, args))
        if self._waiting > self._budget:
            with self._room:
                while self._waiting > self._budget and self.error is None:
                    self._room.wait()

    def at_once(self, step: Callable[..., None], *args: Any) -> None:
        """Do this now, before what is still to be done."""
        try:
            step(*args)
        except OSError as error:
            self.error = self.error or error

    def release(self, size: int) -> None:
        """So many bytes do not wait any more."""
        with self._room:
            self._waiting -= size
            self._room.notify_all()

    def finish(self) -> None:
        """Return when all is done."""
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """What was given is the last."""
        self._queue.put(None)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            step, args = entry
            try:
                if self.error is None:
                    step(*args)
            except BaseException as error:
                self.error = error
                self.release(0)


class Copies:
    """Memory for copies, used again: pages that are touched for the first time cost more than the copy."""

    def __init__(self) -> None:
        self._free: dict[int, list[Tensor]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def of(self, tensor: Tensor) -> Tensor:
        """A contiguous copy in the CPU's memory."""
        size = tensor.numel() * tensor.element_size()
        if size < _SMALL or tensor.device.type != "cpu":
            return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
        with self._lock:
            free = self._free.get(size)
            memory = free.pop() if free else None
            self._kept -= 0 if memory is None else size
        if memory is None:
            with torch.inference_mode(False):  # or it could not be written to outside that mode
                memory = torch.empty(size, dtype=torch.uint8)
        copy = memory.view(tensor.dtype).view(tensor.shape)
        copy.copy_(tensor)
        return copy

    def back(self, copy: Tensor) -> None:
        """Nobody looks at a copy any more."""
        size = copy.numel() * copy.element_size()
        if size < _SMALL or copy.untyped_storage().nbytes() != size:
            return
        with self._lock:
            if self._kept + size <= KEPT:
                self._kept += size
                self._free.setdefault(size, []).append(copy.view(-1).view(torch.uint8))


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, while somebody holds it; torch's own ``numpy()`` fixes its size."""
    size = tensor.nbytes
    return memoryview(memory_of(tensor)).cast("B")[:size] if size else memoryview(b"")


class Safetensors:
    """One safetensors file, written as its tensors come.

    The table of contents stands at the front and is known at the end: a file that grows beyond ``streamed`` bytes
    leaves room for it. What has no multiple of 8 bytes comes last: elsewhere it would push the others off their
    alignment.
    """

    def __init__(self, path: Path, metadata: Mapping[str, str], streamed: int = STREAMED) -> None:
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
        return not self._reserved or self._table + sum(map(_most, parts, parts.values())) <= self._reserved

    def add(self, name: str, tensor: Tensor) -> list[Tensor]:
        """Take a tensor; return those that are in the file by now and not needed any more."""
        self._table += _most(name, tensor)
        self.waiting += tensor.nbytes
        if tensor.nbytes % 8:
            self._odd.append((name, tensor))
            return []
        self._early.append((name, tensor))
        if self.end + self.waiting < self._streamed:
            return []
        if not self._reserved:
            self._begin(max(RESERVED, 2 * self._table))
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
            self._entries.append(_entry(name, NAMES[tensor.dtype], tensor.shape, start, self.end))
            _write(self._file, body)
            self.waiting -= len(body)
        written, self._early = [tensor for _, tensor in self._early], []
        return written


def _most(name: str, tensor: Tensor) -> int:
    """Bytes that an entry takes at most."""
    return len(json.dumps(name)) + 21 * (tensor.dim() + 2) + 60


def _write_at_the_start(file: Any, data: bytes) -> None:
    file.seek(0)
    _write(file, data)


def _entry(name: str, dtype: str, shape: Sequence[int], start: int, end: int) -> str:
    sizes = ",".join(map(str, shape))
    return f'{json.dumps(name)}:{{"dtype":"{dtype}","shape":[{sizes}],"data_offsets":[{start},{end}]}}'


@functools.lru_cache(maxsize=1024)
def _head_of_one(dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    return _header([_entry("data", dtype, shape, 0, size)])


def _header(entries: list[str], room: int | None = None) -> bytes:
    """The length of the table of contents, and the table, filled up with blanks to ``room`` bytes."""
    table = ("{" + ",".join(entries) + "}").encode()
    table = table.ljust(-len(table) % 8 + len(table) if room is None else room)
    return len(table).to_bytes(8, "little") + table


_gather: Callable[[int, Any], int] | None = getattr(os, "writev", None)  # Windows has none


def _write(file: Any, *parts: memoryview | bytes) -> None:
    """Write these one after the other, in one piece where the system can. It takes at most 2 GB at a time."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        done = file.write(left[0]) if len(left) < 2 or _gather is None else _gather(file.fileno(), left)
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if left:
            left[0] = left[0][done:]


def write_one(file: io.FileIO, tensor: Tensor) -> None:
    """Make an empty file one with a tensor, ``data``: byte for byte as ``safetensors.torch.save_file`` writes it."""
    _write(file, _head_of_one(NAMES[tensor.dtype], tuple(tensor.shape), tensor.nbytes), bytes_of(tensor))
