"""A thread that writes to disk while the model runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from fxdebug.store.tensors.safetensors_file import DTYPE_NAMES

if hasattr(torch, "float8_e8m0fnu"):  # from torch 2.7 on
    DTYPE_NAMES[torch.float8_e8m0fnu] = "F8_E8M0"


class WriteThread:
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
