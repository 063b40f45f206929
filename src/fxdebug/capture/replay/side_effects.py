"""Running a body's Python a second time without the world noticing: what it says and starts is left out.

Only the thread that traces is affected; what other threads print, warn or start goes its way.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
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
from types import FrameType
from typing import Any

import torch

from fxdebug.capture import reasons
from fxdebug.capture.hooks.patch import Attribute, Patch, SharedPatch
from fxdebug.capture.reasons import CannotTrace, Words
from fxdebug.capture.replay.global_settings import must_not_be_set
from fxdebug.capture.replay.stateful_objects import is_out_of_reach
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.distributed import communicating_functions


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Says nothing, waits for nothing."""


def _print(*args: Any, file: Any = None, **kwargs: Any) -> None:
    """What does not leave the body is written: to a file that it made, or put in place of ``sys.stdout``."""
    stream = sys.stdout if file is None else file
    if stream is not None and type(stream) is not _Muted and not is_out_of_reach(stream):
        _to_print(*args, file=stream, **kwargs)


def _warn(message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any) -> None:
    """Heard only where the body itself has put something up to hear it, or to raise it."""
    if warnings.filters is not _mine.filters:
        _to_warn(message, category, stacklevel + 2, *args, **kwargs)  # 2: our own frames


_to_print, _to_warn = builtins.print, warnings.warn


def _no_garbage(*args: Any, **kwargs: Any) -> int:
    """Collects nothing: what is freed would run the program's finalizers."""
    return 0


def _refuse(what: Words) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise CannotTrace(what)

    refused.__dict__["refuses"] = True
    return refused


_open = builtins.open


def _open_to_read(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if set(mode) & set("wax+") and not _is_importing():
        raise CannotTrace(reasons.WRITES_FILE())
    return _open(file, mode, *args, **kwargs)


# What changes the world outside the process, as far as Python's own libraries do it.
_CHANGES_FILES = "remove unlink rename replace mkdir rmdir symlink link truncate chmod utime open".split()
_STARTS = "system popen posix_spawn posix_spawnp fork execv execve kill".split()


class _Mine(threading.local):
    """How many of these blocks this thread is in."""

    depth = 0
    stands_for: Callable[[Any], Any] | None = None  # what a tensor is replaced by where a scripted function runs
    within: FrameType | None = None  # what the innermost one is in
    filters: Any = None  # of warnings, as they were when it began: ``catch_warnings`` makes others


_mine = _Mine()


def begin(who: object) -> None:
    """Put our functions in place, until :func:`end`: they do as the originals do outside of :func:`hushed` blocks."""
    _hushing.begin(who)


def end(who: object) -> None:
    """Put back what was there. Several threads may have begun: the last one to end does it. Ending twice is no harm."""
    _hushing.end(who)


def _scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A scripted function is no torch function: no mode hears of it; what it writes to would be written to twice."""
    if _mine.stands_for is None:
        raise CannotTrace(reasons.RUNS_SCRIPTED())
    args, kwargs = internals.tree_map(_mine.stands_for, (args, kwargs))
    return _call_scripted(function, *args, **kwargs)


_call_scripted = torch.jit.ScriptFunction.__call__


@contextlib.contextmanager
def standing_in(stands_for: Callable[[Any], Any]) -> Iterator[None]:
    """A block in which scripted functions of this thread run, on what ``stands_for`` their arguments."""
    before, _mine.stands_for = _mine.stands_for, stands_for
    try:
        yield
    finally:
        _mine.stands_for = before


@contextlib.contextmanager
def side_effects_blocked() -> Iterator[None]:
    """A block in which this thread's prints, warnings, log records and sleeps do not happen.

    Starting a thread, writing to a file or asking for input raises :class:`Mismatch` instead.
    """
    who, before = object(), (_mine.depth, _mine.within, _mine.filters)
    try:
        begin(who)
        _mine.depth, _mine.within, _mine.filters = before[0] + 1, sys._getframe(2), warnings.filters
        yield
    finally:
        _mine.depth, _mine.within, _mine.filters = before
        try:
            end(who)
        finally:  # once more, where an interrupt (Ctrl-C) came at that very moment
            end(who)


def _for_hushed(replacement: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes the function that does as the original outside of :func:`hushed` blocks."""
    refuses = hasattr(replacement, "refuses")

    def in_front_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(*args: Any, **kwargs: Any) -> Any:
            if not _mine.depth or (refuses and _is_importing()):
                return original(*args, **kwargs)
            return replacement(*args, **kwargs)

        return chosen

    return in_front_of


def _is_importing() -> bool:
    """Is a library being imported in this block? It must not stop in the middle: Python keeps half of it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame is not _mine.within:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


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


def _muted(stream: Any) -> Any:
    return None if stream is None else _Muted(stream)


# What is patched ---------------------------------------------------------------------------------


def _group(name: str, *functions: tuple[Any, str, Callable[..., Any]]) -> Iterator[Patch]:
    """Functions that are one row of the table: owner, attribute, and what runs instead in :func:`hushed` blocks."""
    for owner, attribute, replacement in functions:
        yield Attribute(name, owner, attribute, _for_hushed(replacement))


_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
_ALWAYS: tuple[Patch, ...] = (
    *_group(
        "functions that print, warn, log or wait",
        (builtins, "print", _print),
        (warnings, "warn", _warn),
        (warnings, "warn_explicit", _nothing),
        (logging.Logger, "handle", _nothing),
        (time, "sleep", _nothing),
    ),
    *_group(
        "functions that ask for input or change files",
        (builtins, "input", _refuse(reasons.ASKS_FOR_INPUT())),
        (builtins, "open", _open_to_read),
        (io, "open", _open_to_read),
        (os, "write", _refuse(reasons.WRITES_FILE_BY(function="os.write"))),
        *((os, name, _refuse(reasons.CHANGES_FILES(function=f"os.{name}"))) for name in _CHANGES_FILES),
    ),
    *_group(
        "functions that start threads or processes, or talk to them",
        (threading, "_start_new_thread", _refuse(reasons.STARTS_THREAD())),
        (threading, "_start_joinable_thread", _refuse(reasons.STARTS_THREAD())),  # since Python 3.13
        (subprocess.Popen, "__init__", _refuse(reasons.STARTS_PROCESS())),
        *((os, name, _refuse(reasons.ACTS_ON_PROCESSES(function=f"os.{name}"))) for name in _STARTS),
        (socket, "create_connection", _refuse(reasons.OPENS_CONNECTION())),
        (queue.Queue, "put", _refuse(reasons.PUTS_IN_QUEUE())),
        (queue.Queue, "get", _refuse(reasons.TAKES_FROM_QUEUE())),
    ),
    *_group(
        "functions of the garbage collector",
        (gc, "collect", _no_garbage),
        (gc, "enable", _refuse(reasons.COLLECTOR_ON())),
        (gc, "disable", _refuse(reasons.COLLECTOR_OFF())),
    ),
    *_group(
        "functions that set something of the process or of torch",
        *((owner, name, _refuse(why)) for owner, name, why in must_not_be_set()),
    ),
    Attribute("torch.jit.ScriptFunction.__call__", torch.jit.ScriptFunction, "__call__", _for_hushed(_scripted)),
    *(Attribute("the streams of sys", sys, name, _muted) for name in _STREAMS),
)
_talking = _refuse(reasons.COMMUNICATES())


class _Hushing(SharedPatch):
    """All of them, and what talks to the other processes of a distributed job, where this is one."""

    def places(self) -> tuple[Patch, ...]:
        """Return what is to be patched now."""
        talking = [(owner, name, _talking) for owner, name in communicating_functions()]
        return (*_ALWAYS, *_group("functions of torch.distributed that communicate", *talking))


_hushing = _Hushing()
