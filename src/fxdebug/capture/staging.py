"""Small tensors wait here, as copies, until their statistics are taken together.

Measuring a tensor as it appears takes twice as long as the arithmetic: every time, the processor has to
fetch the code of half a dozen reductions anew. A copy of the bytes is made at once, the tensor may change
afterwards; when the place is full or the run is over, all that wait are measured in a row.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fxdebug.data.values import Stats, Value
from fxdebug.stats import finished, is_elsewhere

ROOM = 1 << 20  # elements that wait at most: 4 MB of float32
LARGEST = 1 << 16  # elements of a tensor that is worth it

_copy = ctypes.memmove
_SIZES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}


class Measured:
    """The statistics of some elements, and the values they are of while they are still to be taken."""

    __slots__ = ("stats", "values")

    def __init__(self) -> None:
        self.stats: Stats | None = None
        self.values: list[Value] | None = None

    def of(self, value: Value) -> None:
        """They are this value's, too."""
        if self.values is not None:
            self.values.append(value)
        else:
            object.__setattr__(value, "stats", self.stats)

    def settle(self, stats: Stats | None) -> None:
        """They are known now."""
        self.stats = stats
        for value in self.values or ():
            object.__setattr__(value, "stats", stats)
        self.values = None


class Staging:
    """The tensors of one run that wait. Not for several threads at once: its owner sees to that."""

    def __init__(self) -> None:
        self._waiting: dict[torch.dtype, _Waiting] = {}

    def take(self, tensor: Tensor, count: int, dims: tuple[tuple[int, int], ...], measured: Measured) -> bool:
        """Copy a tensor in the CPU's memory, if it is one to wait; ``measured`` is told when it is done.

        ``dims``: (stride, size) of where it lies in memory, the finest first.
        """
        size = _SIZES.get(tensor.dtype)
        if size is None or not 0 < count <= LARGEST or is_elsewhere(tensor):
            return False
        waiting = self._waiting.get(tensor.dtype)
        if waiting is None:
            waiting = self._waiting[tensor.dtype] = _Waiting(tensor.dtype)
        parts = waiting.parts
        start = parts[-1][1] if parts else 0
        if start + count > ROOM:
            waiting.settle()
            parts, start = waiting.parts, 0
        if len(dims) < 2 and (not dims or dims[0][0] == 1):
            _copy(waiting.address + start * size, tensor.data_ptr(), count * size)
        else:
            waiting.copy(tensor, dims, start)
        measured.values = []
        parts.append((start, start + count, measured))  # the last step: an interrupt (Ctrl-C) leaves no half of this
        return True

    def close(self) -> None:
        """Measure all that wait, and give the memory back."""
        while self._waiting:  # out of there first: memory that was given back twice would have two users
            _, waiting = self._waiting.popitem()
            waiting.settle()
            waiting.close()


class _Waiting:
    """The tensors of one dtype that wait, one after the other in memory."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._memory = _memory(dtype)
        self.address: int = self._memory.data_ptr()
        self.parts: list[tuple[int, int, Measured]] = []  # where each begins and ends

    def copy(self, tensor: Tensor, dims: tuple[tuple[int, int], ...], start: int) -> None:
        """Copy elements that lie apart, in the order in which they lie."""
        strides, sizes = zip(*reversed(dims))
        apart = tensor.as_strided(sizes, strides)
        self._memory[start : start + apart.numel()].view(sizes).copy_(apart)

    @np.errstate(all="ignore")
    def settle(self) -> None:
        if not self.parts:
            return
        parts, self.parts = self.parts, []
        memory = self._memory[: parts[-1][1]].to(torch.float32)  # the very memory, where it is that already
        array: np.ndarray = memory.numpy()
        starts = [start for start, _, _ in parts]
        lows, highs = np.minimum.reduceat(array, starts).tolist(), np.maximum.reduceat(array, starts).tolist()
        totals = np.add.reduceat(array, starts).tolist()
        is_zero = array == 0
        for (start, end, measured), low, high, total in zip(parts, lows, highs, totals):
            part = array[start:end]
            zeros = int(np.count_nonzero(is_zero[start:end])) if low <= 0.0 <= high else 0
            sums = total, float(part.dot(part)), low, high, zeros
            measured.settle(finished(memory[start:end], 1, sums))

    def close(self) -> None:
        _give_back(self._memory)


# Memory that was used before is there at once; fresh pages cost as much as the copies ----------------

_lock = threading.Lock()
_free: dict[Any, list[Tensor]] = {}


def _memory(dtype: torch.dtype) -> Tensor:
    with _lock:
        free = _free.get(dtype)
        if free:
            return free.pop()
    with torch.inference_mode(False):  # or it could not be written to outside that mode, in a later run
        return torch.empty(ROOM, dtype=dtype)


def _give_back(memory: Tensor) -> None:
    with _lock:
        free = _free.setdefault(memory.dtype, [])
        if len(free) < 2:
            free.append(memory)
