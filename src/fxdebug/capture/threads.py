"""In which call a thread was started: what it calls belongs there, whichever thread it is.

For the length of the recordings that are on, ``threading.Thread.start`` and
``ThreadPoolExecutor.submit`` note the call that is open where they are called. Nothing else about
them changes, and both are put back.
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

if TYPE_CHECKING:
    from fxdebug.capture.frame import Frame
    from fxdebug.capture.recorder import Recorder

_Origins = dict["Recorder", "Frame"]

_lock = threading.RLock()
_recorders: tuple[Recorder, ...] = ()
_of_thread: weakref.WeakKeyDictionary[threading.Thread, _Origins] = weakref.WeakKeyDictionary()
_task = threading.local()  # ``origins`` while a task of a pool runs

_put_back: list[Callable[[], None]] = []


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


def _here() -> _Origins:
    origins = {}
    for recorder in _recorders:
        frame = recorder.innermost()
        if frame is not None:
            origins[recorder] = frame
            recorder.not_again(frame, "it starts threads")
    return origins


def _noting_start(start: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(start)
    def noted(self: threading.Thread, *args: Any, **kwargs: Any) -> None:
        origins = _here()
        if origins:
            _of_thread[self] = origins
        return start(self, *args, **kwargs)

    return noted


def _noting_submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(submit)
    def noted(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        origins = _here()
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


def begin(recorder: Recorder) -> None:
    """From now on, threads know the call of this recorder in which they were started."""
    global _recorders
    with _lock:
        if not _recorders:
            _replace(threading.Thread, "start", _noting_start)
            _replace(ThreadPoolExecutor, "submit", _noting_submit)
        _recorders = (*_recorders, recorder)


def end(recorder: Recorder) -> None:
    """No longer; the last one puts both methods back."""
    global _recorders
    with _lock:
        _recorders = tuple([other for other in _recorders if other is not recorder])
        while not _recorders and _put_back:
            _put_back.pop()()


def _replace(owner: type, name: str, noting: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = owner.__dict__[name]
    ours = noting(original)
    setattr(owner, name, ours)

    def put_back() -> None:
        if owner.__dict__.get(name) is ours:  # what the program put there meanwhile stays
            setattr(owner, name, original)

    _put_back.append(put_back)
