"""The call in which a thread was started: the thread's own calls belong to it.

While recordings are on, ``threading.Thread.start`` and ``ThreadPoolExecutor.submit`` note the call that is open where
they are called (``patched_functions``). Nothing else about them changes.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks.observers import CallRecorder, CallT
from fxdebug.capture.torch_state.uncounted import uncounted

_Origins = dict[CallRecorder[Any], Any]  # recorder → the call that was open
_Recorders = Callable[[], tuple[CallRecorder[Any], ...]]

_of_thread: weakref.WeakKeyDictionary[threading.Thread, _Origins] = weakref.WeakKeyDictionary()
_of_task = threading.local()  # ``origins`` while a task of a pool runs


def origin(recorder: CallRecorder[CallT]) -> CallT | None:
    """Return the call in which this thread, or the pool task that it runs, was started; ``None`` if there was none."""
    origins: _Origins | None = getattr(_of_task, "origins", None)
    if origins is None:
        origins = _of_thread.get(threading.current_thread())
    return None if origins is None else origins.get(recorder)


def is_calling(module: nn.Module) -> bool:
    """Is this thread inside a call of the module, recorded or not?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL and frame.f_locals.get("self") is module:
            return True
        frame = frame.f_back
    return False


_CALL = nn.Module.__call__.__code__


def _open_calls(recorders: _Recorders) -> _Origins:
    """Return each recorder's open call in this thread, marked: a call that starts a thread cannot be run again."""
    origins: _Origins = {}
    for recorder in recorders():
        call = recorder.innermost()
        if call is not None:
            origins[recorder] = call
            recorder.mark_not_replayable(call, reasons.STARTS_THREADS())
    return origins


def noting_start(start: Callable[..., None], recorders: _Recorders) -> Callable[..., None]:
    """Return the replacement of ``Thread.start``."""

    @functools.wraps(start)
    def noted(self: threading.Thread, *args: Any, **kwargs: Any) -> None:
        origins = _open_calls(recorders)
        if origins:
            _of_thread[self] = origins
        return start(self, *args, **kwargs)

    return noted


def noting_submit(submit: Callable[..., Any], recorders: _Recorders) -> Callable[..., Any]:
    """Return the replacement of ``ThreadPoolExecutor.submit``."""

    @functools.wraps(submit)
    def noted(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        origins = _open_calls(recorders)
        return submit(self, _Task(fn, origins) if origins else fn, *args, **kwargs)

    return noted


class _Task:
    """A function on its way to a pool's thread, with the calls in which it was submitted."""

    __slots__ = ("function", "origins")

    def __init__(self, function: Callable[..., Any], origins: _Origins) -> None:
        self.function = function
        self.origins = origins

    @uncounted
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = getattr(_of_task, "origins", None)
        _of_task.origins = self.origins
        try:
            return self.function(*args, **kwargs)
        finally:
            _of_task.origins = before
