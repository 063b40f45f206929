"""Pause the garbage collector and discourage thread switches while a forward is re-executed.

A write of another thread or of a finalizer cannot be told from a write of the body. It would be undone with the
body's own, and a finalizer that removes a file would be refused.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from fxdebug.capture.hooks.patch import Setting, SharedPatch

PATIENCE = 10.0  # seconds
SWITCH_INTERVAL = 0.05  # seconds: a body that takes longer lets other threads run once in each interval


def _set_collector(on: bool) -> None:
    if on:
        gc.enable()
    else:
        gc.disable()


_collector_off = SharedPatch(Setting("gc.disable", gc.isenabled, _set_collector, lambda was_on: False))
_longer_interval = SharedPatch(
    Setting(
        "sys.setswitchinterval",
        sys.getswitchinterval,
        sys.setswitchinterval,
        lambda interval: max(SWITCH_INTERVAL, interval),
    )
)


def gc_paused() -> AbstractContextManager[None]:
    """Turn Python's garbage collector off inside the block.

    Freeing garbage may run code of the program (``__del__``, finalizers), and that code may wait and let other
    threads run.

    >>> with gc_paused():
    ...     gc.isenabled()
    False
    """
    return _collector_off.block()


@contextlib.contextmanager
def threads_paused() -> Iterator[None]:
    """Keep other threads waiting inside the block, as long as the block itself does not wait for anything."""
    with gc_paused(), _longer_interval.block():
        time.sleep(0)  # a thread already waiting uses the old interval: let it run once, then it uses the new one
        yield


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    """Have other threads that reach such a block wait for the end of this one.

    Not for longer than :data:`PATIENCE`: the thread in the block may wait for a lock of the program that the other one
    holds.
    """
    if getattr(_here, "is_inside", False):
        yield
        return
    turn = _turns.setdefault(os.getpid(), threading.RLock())
    try:
        _here.is_inside = True
        turn.acquire(timeout=PATIENCE)
        yield
    finally:
        _here.is_inside = False
        # Never after a wait in vain, twice after some interrupts. One that comes here comes with a call of Python's.
        try:
            while True:
                turn.release()
        except RuntimeError:  # this thread does not hold it
            pass


_here = threading.local()
_turns: dict[int, Any] = {}  # by process: in a forked one, a thread that held the lock of its parent is not there


def is_only_thread() -> bool:
    """Is there no other thread that may run code of the program?"""
    here = threading.current_thread()
    return all(thread is here or _module_of(thread) in _INDEPENDENT for thread in threading.enumerate())


# Threads that touch nothing of the model: they draw progress bars, and serve the connection and history of a notebook.
_INDEPENDENT = frozenset(
    (
        "tqdm._monitor", "ipykernel.heartbeat", "ipykernel.iostream", "ipykernel.control", "ipykernel.shellchannel",
        "ipykernel.parentpoller", "IPython.core.history",
    )
)  # fmt: skip


def _module_of(thread: threading.Thread) -> str:
    """Return the name of the Python module that has the code of a thread."""
    target = getattr(thread, "_target", None) if type(thread) is threading.Thread else type(thread)
    return str(getattr(target, "__module__", ""))
