"""Block side effects while a body is re-executed.

Printing and waiting do nothing. Writing files, starting threads or processes and the like are refused. Only the
thread that re-executes the body is affected: other threads print, warn and write as usual.
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
from fxdebug.capture.reasons import CannotTrace, ReasonText
from fxdebug.capture.replay.global_settings import refused_setters
from fxdebug.capture.replay.stateful_objects import is_blocker
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.distributed import communicating_functions

# Replacements ------------------------------------------------------------------------------------

_original_print, _original_warn, _original_open = builtins.print, warnings.warn, builtins.open


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Say nothing, wait for nothing."""


def _print(*args: Any, file: Any = None, **kwargs: Any) -> None:
    """Print only to a stream of the body's own: a file that it made, also in the place of ``sys.stdout``."""
    stream = sys.stdout if file is None else file
    if stream is not None and type(stream) is not _MutedStream and not is_blocker(stream):
        _original_print(*args, file=stream, **kwargs)


def _warn(message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any) -> None:
    """Warn only where the body itself catches warnings, or turns them into errors."""
    if warnings.filters is not _here.filters:
        _original_warn(message, category, stacklevel + 2, *args, **kwargs)  # 2: our own frames


class _Unheard(type):
    """The kind of a category that all warnings of a block belong to, unless the body catches warnings itself.

    ``from warnings import warn`` binds a name that no patch reaches; every warning passes through the filters.
    """

    def __subclasscheck__(cls, category: Any) -> bool:
        return bool(_here.depth) and warnings.filters is _here.filters


class _OfBlocks(Warning, metaclass=_Unheard):
    """Stands for all warnings of a block."""


def _quiet_in_blocks(filters: Any) -> Any:
    return [("ignore", None, _OfBlocks, None, 0), *filters]


def _collect_nothing(*args: Any, **kwargs: Any) -> int:
    """Collect nothing: a collection would run finalizers of the program."""
    return 0


def _refuse(reason: ReasonText) -> Callable[..., Any]:
    """Return a function that ends the trace with this reason."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise CannotTrace(reason)

    refused.__dict__["refuses"] = True
    return refused


def _open_to_read(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if set(mode) & set("wax+") and not _is_importing():
        raise CannotTrace(reasons.WRITES_FILE())
    return _original_open(file, mode, *args, **kwargs)


def _scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse a scripted function, or run it on replaced arguments.

    No mode sees the operations of a scripted function, so its writes to tensors would happen twice.
    """
    if _here.replace_argument is None:
        raise CannotTrace(reasons.RUNS_SCRIPTED())
    args, kwargs = internals.tree_map(_here.replace_argument, (args, kwargs))
    return _call_scripted(function, *args, **kwargs)


_call_scripted = torch.jit.ScriptFunction.__call__


# Blocks ------------------------------------------------------------------------------------------


class _ThreadState(threading.local):
    """State of this module in one thread."""

    depth = 0  # number of blocks that the thread is in
    entered_from: FrameType | None = None  # frame that has entered the innermost block
    filters: Any = None  # ``warnings.filters`` when the block began: ``catch_warnings`` makes another list
    replace_argument: Callable[[Any], Any] | None = None  # for scripted functions; without it they are refused


_here = _ThreadState()


def begin(user: object) -> None:
    """Patch the functions until :func:`end`. Outside of :func:`side_effects_blocked` they act as the originals do."""
    _patched.begin(user)


def end(user: object) -> None:
    """Restore the functions, if this is the last user, in any thread. Ending twice does no harm."""
    _patched.end(user)


@contextlib.contextmanager
def scripted_functions_on(replace_argument: Callable[[Any], Any]) -> Iterator[None]:
    """Inside the block, let scripted functions of this thread run, on ``replace_argument(x)`` for each argument."""
    before, _here.replace_argument = _here.replace_argument, replace_argument
    try:
        yield
    finally:
        _here.replace_argument = before


@contextlib.contextmanager
def side_effects_blocked() -> Iterator[None]:
    """Block the side effects of this thread inside the block.

    Prints, warnings, log records and sleeps do nothing. Starting a thread, writing to a file or asking for input
    raises ``CannotTrace``.
    """
    user, before = object(), (_here.depth, _here.entered_from, _here.filters)
    try:
        begin(user)
        _here.depth, _here.entered_from, _here.filters = before[0] + 1, sys._getframe(2), warnings.filters
        yield
    finally:
        _here.depth, _here.entered_from, _here.filters = before
        try:
            end(user)
        finally:  # once more, where an interrupt (Ctrl-C) came at that very moment
            end(user)


def _only_in_blocks(replacement: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: the result runs ``replacement`` inside of blocks and the original elsewhere."""
    refuses = hasattr(replacement, "refuses")

    def in_front_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(*args: Any, **kwargs: Any) -> Any:
            if not _here.depth or (refuses and _is_importing()):
                return original(*args, **kwargs)
            return replacement(*args, **kwargs)

        return chosen

    return in_front_of


def _is_importing() -> bool:
    """Is a library being imported in this block? An import must not fail halfway: parts of it would stay imported."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame is not _here.entered_from:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class _MutedStream:
    """Stands in for a stream of the process and drops what is written inside of blocks."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: Any) -> Any:
        return len(text) if _here.depth else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        if not _here.depth:
            self._stream.writelines(lines)

    @property
    def buffer(self) -> Any:
        return _MutedStream(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _muted(stream: Any) -> Any:
    return None if stream is None else _MutedStream(stream)


def muted_if_standard(thing: Any) -> Any:
    """Return a stand-in for one of the process's own streams that somebody keeps, such as a logger's; else ``None``."""
    for name in _STREAMS:
        stream = getattr(sys, name)
        if thing is not None and (thing is stream or thing is getattr(stream, "_stream", None)):
            return _MutedStream(thing)
    return None


# Patches -----------------------------------------------------------------------------------------

# Functions of Python's own libraries with effects outside of the process.
_CHANGES_FILES = "remove unlink rename replace mkdir rmdir symlink link truncate chmod utime open".split()
_STARTS = "system popen posix_spawn posix_spawnp fork execv execve kill".split()


def _group(name: str, *functions: tuple[Any, str, Callable[..., Any]]) -> Iterator[Patch]:
    """Yield patches for one row of the table in ``docs/how-it-works.md``: owner, attribute, replacement in blocks."""
    for owner, attribute, replacement in functions:
        yield Attribute(name, owner, attribute, _only_in_blocks(replacement))


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
    Attribute("functions that print, warn, log or wait", warnings, "filters", _quiet_in_blocks),
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
        (gc, "collect", _collect_nothing),
        (gc, "enable", _refuse(reasons.COLLECTOR_ON())),
        (gc, "disable", _refuse(reasons.COLLECTOR_OFF())),
    ),
    *_group(
        "functions that set something of the process or of torch",
        *((owner, name, _refuse(reason)) for owner, name, reason in refused_setters()),
    ),
    Attribute("torch.jit.ScriptFunction.__call__", torch.jit.ScriptFunction, "__call__", _only_in_blocks(_scripted)),
    *(Attribute("the streams of sys", sys, name, _muted) for name in _STREAMS),
)
_communicate = _refuse(reasons.COMMUNICATES())


class _BlockedFunctions(SharedPatch):
    """All patches above, and in a distributed job the functions that communicate with other processes."""

    def places(self) -> tuple[Patch, ...]:
        """Return the patches to apply now."""
        collectives = [(owner, name, _communicate) for owner, name in communicating_functions()]
        return (*_ALWAYS, *_group("functions of torch.distributed that communicate", *collectives))


_patched = _BlockedFunctions()
