"""Moments in which nobody else's code runs: not other threads' of their own accord, not what frees garbage.

What another thread or a finalizer writes while a body is run again cannot be told from what the body writes: it
would be taken back, and a finalizer that removes a file would be refused to.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from fxdebug.capture.hooks.patch import Setting, SharedPatch

MOMENT = 0.05  # seconds: a body that takes longer is left for other threads after so many


def _collect(on: bool) -> None:
    if on:
        gc.enable()
    else:
        gc.disable()


_collector = SharedPatch(Setting("gc.disable", gc.isenabled, _collect, lambda found: False))
_interval = SharedPatch(
    Setting("sys.setswitchinterval", sys.getswitchinterval, sys.setswitchinterval, lambda found: max(MOMENT, found))
)


def gc_paused() -> AbstractContextManager[None]:
    """A block during which Python does not look for garbage.

    What it frees may run the program's code (``__del__``, finalizers), or wait and so let other threads in.
    """
    return _collector.block()


# Threads of these mind their own business: they draw progress bars, keep a notebook's connection and its history.
_ELSEWHERE = frozenset(
    (
        "tqdm._monitor", "ipykernel.heartbeat", "ipykernel.iostream", "ipykernel.control", "ipykernel.shellchannel",
        "ipykernel.parentpoller", "IPython.core.history",
    )
)  # fmt: skip


def is_alone() -> bool:
    """Is there no other thread that may run code of the program's?"""
    here = threading.current_thread()
    return all(thread is here or _home_of(thread) in _ELSEWHERE for thread in threading.enumerate())


def _home_of(thread: threading.Thread) -> str:
    """The Python module of what a thread runs."""
    target = getattr(thread, "_target", None) if type(thread) is threading.Thread else type(thread)
    return str(getattr(target, "__module__", ""))


@contextlib.contextmanager
def threads_paused() -> Iterator[None]:
    """A block during which other threads wait, for so long as it does nothing that waits itself."""
    with gc_paused(), _interval.block():
        time.sleep(0)  # who waits already has the interval of before in mind: let through, it asks with the new one
        yield
