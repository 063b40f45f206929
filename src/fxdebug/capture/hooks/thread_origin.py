"""In which call a thread was started: what it calls belongs there, whichever thread it is.

For the length of the recordings that are on (``ongoing``), ``threading.Thread.start`` and
``ThreadPoolExecutor.submit`` note the call that is open where they are called. Nothing else about
them changes.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import nn

from fxdebug.capture import reasons

if TYPE_CHECKING:
    from fxdebug.capture.recorder.frame import Frame
    from fxdebug.capture.recorder.recorder import Recorder

_Origins = dict["Recorder", "Frame"]
_On = Callable[[], tuple["Recorder", ...]]

_of_thread: weakref.WeakKeyDictionary[threading.Thread, _Origins] = weakref.WeakKeyDictionary()
_task = threading.local()  # ``origins`` while a task of a pool runs


def origin(recorder: Recorder) -> Frame | None:
    """The call in which this thread, or the pool's task it is at, was started; ``None`` if in none."""
    origins: _Origins | None = getattr(_task, "origins", None)
    if origins is None:
        origins = _of_thread.get(threading.current_thread())
    return None if origins is None else origins.get(recorder)


def is_calling(module: nn.Module) -> bool:
    """Is this thread inside a call of the module, whether that was recorded or not?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _called and frame.f_locals.get("self") is module:
            return True
        frame = frame.f_back
    return False


_called = nn.Module.__call__.__code__


def _here(recorders: _On) -> _Origins:
    origins = {}
    for recorder in recorders():
        frame = recorder.innermost()
        if frame is not None:
            origins[recorder] = frame
            recorder.not_again(frame, reasons.STARTS_THREADS())
    return origins


def noting_start(start: Callable[..., None], recorders: _On) -> Callable[..., None]:
    """What stands in front of ``Thread.start``."""

    @functools.wraps(start)
    def noted(self: threading.Thread, *args: Any, **kwargs: Any) -> None:
        origins = _here(recorders)
        if origins:
            _of_thread[self] = origins
        return start(self, *args, **kwargs)

    return noted


def noting_submit(submit: Callable[..., Any], recorders: _On) -> Callable[..., Any]:
    """What stands in front of ``ThreadPoolExecutor.submit``."""

    @functools.wraps(submit)
    def noted(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        origins = _here(recorders)
        return submit(self, _Task(fn, origins) if origins else fn, *args, **kwargs)

    return noted


class _Task:
    """A function on its way to a pool's thread, and where it comes from."""

    __slots__ = ("function", "origins")

    def __init__(self, function: Callable[..., Any], origins: _Origins) -> None:
        self.function = function
        self.origins = origins

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = getattr(_task, "origins", None)
        _task.origins = self.origins
        try:
            return self.function(*args, **kwargs)
        finally:
            _task.origins = before
