"""Running a body's Python a second time without the world noticing: what it says and starts is left out.

Only the thread that traces is affected; what other threads print, warn or start goes its way.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from fxdebug.capture.standin import Mismatch


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Says nothing, waits for nothing."""


def _refuse(what: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise Mismatch(what)

    return refused


_open = builtins.open


def _open_to_read(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if set(mode) & set("wax+"):
        raise Mismatch("it writes to a file")
    return _open(file, mode, *args, **kwargs)


# What changes the world outside the process, as far as Python's own libraries do it.
_CHANGES_FILES = "remove unlink rename replace mkdir rmdir symlink link truncate chmod utime open".split()
_STARTS = "system popen posix_spawn posix_spawnp fork execv execve kill".split()

_REPLACED: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (builtins, "print", _nothing),
    (builtins, "input", _refuse("it asks for input")),
    (builtins, "open", _open_to_read),
    (io, "open", _open_to_read),
    *((os, name, _refuse(f"it changes files (os.{name})")) for name in _CHANGES_FILES if hasattr(os, name)),
    (os, "write", _refuse("it writes to a file (os.write)")),
    *((os, name, _refuse(f"it acts on processes (os.{name})")) for name in _STARTS if hasattr(os, name)),
    (subprocess.Popen, "__init__", _refuse("it starts a process")),
    (socket, "create_connection", _refuse("it opens a connection")),
    (queue.Queue, "put", _refuse("it puts something in a queue")),
    (queue.Queue, "get", _refuse("it takes something from a queue")),
    (warnings, "warn", _nothing),
    (warnings, "warn_explicit", _nothing),
    (logging.Logger, "handle", _nothing),
    (time, "sleep", _nothing),
    (threading, "_start_new_thread", _refuse("it starts a thread")),
)


class _Mine(threading.local):
    """How many of these blocks this thread is in."""

    depth = 0


_mine = _Mine()
_lock = threading.Lock()
_blocks = 0  # that are open, in all threads
_saved: list[tuple[Any, str, Any, Any]] = []  # owner, name, what stood there, ours


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """A block in which this thread's prints, warnings, log records and sleeps do not happen.

    Starting a thread, writing to a file or asking for input raises :class:`Mismatch` instead. Blocks of
    several threads may overlap: the last one to end puts everything back.
    """
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            for owner, name, replacement in _REPLACED:
                original = getattr(owner, name)
                ours = _for_hushed(replacement, original)
                setattr(owner, name, ours)
                _saved.append((owner, name, original, ours))
            for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
                stream = getattr(sys, name)
                if stream is not None:
                    muted = _Muted(stream)
                    setattr(sys, name, muted)
                    _saved.append((sys, name, stream, muted))
    _mine.depth += 1
    try:
        yield
    finally:
        _mine.depth -= 1
        with _lock:
            _blocks -= 1
            while not _blocks and _saved:
                owner, name, original, ours = _saved.pop()
                if getattr(owner, name) is ours:  # what the program put there meanwhile stays
                    setattr(owner, name, original)


def _for_hushed(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (replacement if _mine.depth else original)(*args, **kwargs)

    return chosen


class _Muted:
    """Stands in for a stream of the process: what a hushed thread writes to it is dropped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: Any) -> Any:
        return len(text) if _mine.depth else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        if not _mine.depth:
            self._stream.writelines(lines)

    @property
    def buffer(self) -> Any:
        return _Muted(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
