"""A thread that writes to disk while the model runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class WriteThread:
    """Run steps in order, in a separate thread, with at most ``budget`` bytes waiting.

    An error of the disk never reaches the caller: the first one is kept as ``error``, and later steps are skipped.
    """

    def __init__(self, budget: int) -> None:
        self.error: BaseException | None = None
        self._budget = budget
        self._waiting = 0  # bytes
        self._room = threading.Condition()
        self._queue: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fxdebug-writer", daemon=True)
        try:
            # started before the run: inside a call it would be taken for a thread that the model starts
            self._thread.start()
        except BaseException:  # an interrupt while the thread starts
            self.stop()
            raise

    def submit(self, size: int, step: Callable[..., None], *args: Any) -> None:
        """Run ``step(*args)`` soon; block while more than the budget is waiting.

        ``size``: the bytes that wait from now until :meth:`release`.
        """
        if self.error is not None:
            return
        with self._room:
            self._waiting += size
        self._queue.put((step, args))
        if self._waiting > self._budget:
            with self._room:
                while self._waiting > self._budget and self.error is None:
                    self._room.wait()

    def wait(self) -> None:
        """Return when the steps that are queued now have run, or one of them has failed."""
        done = threading.Event()
        self._queue.put((done.set, ()))
        while self.error is None and self._thread.is_alive() and not done.wait(0.05):
            pass

    def run_now(self, step: Callable[..., None], *args: Any) -> None:
        """Run ``step(*args)`` in the calling thread, before the steps that are queued."""
        try:
            step(*args)
        except OSError as error:
            self.error = self.error or error

    def release(self, size: int) -> None:
        """Subtract bytes that no longer wait."""
        with self._room:
            self._waiting -= size
            self._room.notify_all()

    def finish(self) -> None:
        """Return when every step has run."""
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """End the thread after the steps that are queued, without waiting for it."""
        self._queue.put(None)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            step, args = entry
            try:
                if self.error is None:
                    step(*args)
            except BaseException as error:
                self.error = error
                self.release(0)
