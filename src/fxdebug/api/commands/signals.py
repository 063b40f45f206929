"""End a command at once, and tidily, where its process is asked to end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP


@contextlib.contextmanager
def tidy_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by ``SystemExit``, so that temporary folders are removed.

    Signals that the program ignores, as under ``nohup``, or handles itself are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for name in _ENDING if (number := getattr(signal, name, None)) is not None]
    before = {number: signal.getsignal(number) for number in ours if signal.getsignal(number) is signal.SIG_DFL}
    for number in before:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once() -> None:
    """Let these signals and Ctrl-C end a process that has nothing to tidy up, also while a thread waits for input."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    for name in _ENDING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
