"""Running a body's Python a second time without the world noticing: what it says and starts is left out.

Only the thread that traces is affected; what other threads print, warn or start goes its way.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
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


_REPLACED: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (builtins, "print", _nothing),
    (builtins, "input", _refuse("it asks for input")),
    (builtins, "open", _open_to_read),
    (warnings, "warn", _nothing),
    (warnings, "warn_explicit", _nothing),
    (logging.Logger, "handle", _nothing),
    (time, "sleep", _nothing),
    (threading.Thread, "start", _refuse("it starts a thread")),
)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """A block in which this thread's prints, warnings, log records and sleeps do not happen.

    Starting a thread, writing to a file or asking for input raises :class:`Mismatch` instead.
    """
    mine = threading.get_ident()
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in _REPLACED]
    for (owner, name, replacement), (_, _, original) in zip(_REPLACED, saved):
        setattr(owner, name, _for_thread(mine, replacement, original))
    try:
        yield
    finally:
        for owner, name, original in saved:
            setattr(owner, name, original)


def _for_thread(thread: int, replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (replacement if threading.get_ident() == thread else original)(*args, **kwargs)

    return chosen
