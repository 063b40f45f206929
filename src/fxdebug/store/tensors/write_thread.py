"""Empty files, made by a thread before they are needed.

To create a file takes the system 0.02 to 0.7 ms, by what its disk is at; to write a tensor of a megabyte into one
that is open takes less. The standard tree with ``use_repr=False`` is a file a tensor: made while the model computes,
they cost it nothing.
"""

from __future__ import annotations

import io
import queue
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fxdebug.store.tensors.safetensors_file import NAMES

AHEAD = 8  # files that are made in a row; what nobody needed is removed with its folder


class PreparedFiles:
    """The empty files of one folder, made by the thread of ``writer``. One thread at a time may take them."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._folder = folder
        self._writer = writer
        self._ready: deque[io.FileIO] = deque()
        self._made = 0
        self._is_making = False
        self._order()

    def take(self) -> io.FileIO | None:
        """An empty file, open for writing; ``None`` where none is there yet."""
        file = self._ready.popleft() if self._ready else None
        if len(self._ready) < AHEAD // 2 and not self._is_making:
            self._order()
        return file

    def close(self) -> None:
        """No more are needed. Call it when the writer is at its end."""
        while self._ready:
            self._ready.popleft().close()

    def _order(self) -> None:
        self._is_making = True
        self._writer.put(0, self._make)

    def _make(self) -> None:
        try:
            for _ in range(AHEAD):
                self._ready.append(io.FileIO(f"{self._folder}/blank-{self._made}.safetensors", "x"))
                self._made += 1
        except OSError:  # a full disk: that is told by who needs a file and cannot have it
            return
        self._is_making = False


KEPT = 64 * 1024 * 1024  # bytes of memory that stay for the next copies
_SMALL = 64 * 1024  # bytes up to which memory is had faster than it is looked for
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
