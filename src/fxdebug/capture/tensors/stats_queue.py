"""The statistics of the tensors of one run: which are known already, which are taken now, and which later."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fxdebug.capture.tensors.special_tensors import PLAIN, local_part
from fxdebug.capture.tensors.tensor_state import TensorLayout, TensorState
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Stats, Value
from fxdebug.errors import first_line
from fxdebug.stats.accelerator import DeviceBatch, is_elsewhere
from fxdebug.stats.measure import Unmeasurable, finished, measure, measure_at_once, measure_later

KnownStats = tuple[Stats | None]  # of a weight: none where they were not taken as nobody asked for them
Unchanged = Callable[
    [Tensor, TensorState | None], KnownStats | None
]  # of a weight that is where and what it was before the run


class StatsTaker:
    """Takes statistics, of the same elements once. For one thread at a time: its owner sees to that.

    ``unchanged`` has those of weights. ``staged``: those of small tensors may wait until :meth:`settle`.
    """

    def __init__(self, say: Callable[[str], None], unchanged: Unchanged | None, staged: bool) -> None:
        self.say = say
        self._unchanged = unchanged
        self._staging = Staging() if staged else None
        self._elsewhere: dict[Any, DeviceBatch] = {}  # by device
        self._taken: dict[tuple[Any, ...], Stats | PendingStats] = {}  # by whose versions, memory, place in it, …
        self._said: set[str] = set()

    def of_plain(
        self, tensor: Tensor, sight: TensorState, owner: int, memory: int, is_named: bool, weights: bool
    ) -> tuple[Stats | None, PendingStats | None]:
        """Those of an ordinary tensor in the memory of that number, or what will know them.

        They are those of another tensor, if that had all of these elements. ``owner``: the uid of the tensor whose
        versions these are; those of two tensors say nothing of one another, be it the same memory. With ``weights``
        those of a weight are taken now if they were not before.
        """
        form, _, address, version = sight
        if is_named:
            known = self._of_weight(tensor, sight, weights)
            if known is not None:
                return known[0], None
        if form.dims is None or version is None:
            return None, self.begun(tensor)
        place = owner, memory, address, form.dims, form.kind, version
        found = self._taken.get(place)
        if found is None:
            found = self._taken[place] = self._of_memory(tensor, form, address)
        return (found, None) if isinstance(found, Stats) else (None, found)

    def of_other(self, tensor: Tensor, body: Tensor | None, is_named: bool, weights: bool) -> PendingStats:
        """Those of any other tensor; ``body``: the ordinary one that holds its data."""
        if body is None or body.is_meta:
            plain = local_part(tensor)
            kind = "fake" if internals.is_fake(plain) else "freed" if type(plain) in PLAIN else type(tensor).__name__
            self._without_data("meta" if body is not None else kind)
            return PendingStats()
        known = self._of_weight(tensor, None, weights) if is_named else None
        if known is None:
            return self.begun(body)
        measured = PendingStats()
        measured.settle(known[0])
        return measured

    def _of_weight(self, tensor: Tensor, sight: TensorState | None, weights: bool) -> KnownStats | None:
        known = None if self._unchanged is None else self._unchanged(tensor, sight)
        return None if known is None or (weights and known[0] is None) else known

    def _of_memory(self, tensor: Tensor, form: TensorLayout, address: int) -> Stats | PendingStats:
        if form.count and form.dims is not None and not form.elsewhere:
            stats = measure_at_once(form.kind, address, form.dims)
            if stats is not None:
                return stats
        measured = PendingStats()
        staging = self._staging
        if staging is not None and form.dims is not None and staging.take(tensor, form.count, form.dims, measured):
            return measured
        return self.begun(tensor)

    def begun(self, body: Tensor) -> PendingStats:
        """Those of a tensor: at once, or, on an accelerator, when the run is over: see ``stats.elsewhere``.

        Whether an inference tensor is still what it was only its numbers tell: they are fetched each time.
        """
        measured = PendingStats()
        if is_elsewhere(body) and not body.is_inference():
            measured.values = []
            where = self._elsewhere.setdefault(body.device, DeviceBatch())
            try:
                if measure_later(body, where, measured.settle):
                    return measured
            except Exception as error:
                self._failed(body, error)
                measured.values = None
                return measured
            measured.values = None
        measured.stats = self._now(body)
        return measured

    def at_once(self) -> None:
        """None is to wait any more: somebody looks at the values while they come."""
        self.settle()
        self._staging = None

    def settle(self) -> None:
        """The run is over: what was not measured yet is measured now."""
        if self._staging is not None:
            self._staging.close()
        where, self._elsewhere = self._elsewhere, {}
        if not where:
            return
        with untracked():
            for device, tensors in where.items():
                try:
                    tensors.settle()
                except Exception as error:  # the device is lost, or full
                    self.say(f"no statistics of what is on {device}: {type(error).__name__}: {first_line(error)}")

    def _without_data(self, kind: str) -> None:
        """Said once a run: where one tensor has no data, it may be all of them."""
        if kind not in self._said:
            self._said.add(kind)
            self.say(f"no statistics: a {kind} tensor has no data")

    def _now(self, body: Tensor) -> Stats | None:
        try:
            return measure(body)
        except Unmeasurable as error:
            self.say(f"no statistics: {error}")
        except Exception as error:  # the debugger never breaks the debugged
            self._failed(body, error)
        return None

    def _failed(self, body: Tensor, error: Exception) -> None:
        dtype = str(body.dtype)[6:]
        self.say(f"no statistics of {dtype} ({type(body).__name__}): {type(error).__name__}: {first_line(error)}")


ROOM = 1 << 20  # elements that wait at most: 4 MB of float32
LARGEST = 1 << 16  # elements of a tensor that is worth it

_copy = ctypes.memmove
_SIZES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}


class PendingStats:
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

    def take(self, tensor: Tensor, count: int, dims: tuple[tuple[int, int], ...], measured: PendingStats) -> bool:
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
        self.parts: list[tuple[int, int, PendingStats]] = []  # where each begins and ends

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
