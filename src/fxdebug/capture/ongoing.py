"""The recordings that are on, and functions of Python's and torch's that others stand in front of meanwhile.

Each is told of what a recording must know of at that moment: threads that are started, tensors that are swapped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from fxdebug.capture import swapped, threads

if TYPE_CHECKING:
    from fxdebug.capture.recorder import Recorder

_lock = threading.RLock()
_recorders: tuple[Recorder, ...] = ()
_put_back: list[Callable[[], None]] = []

# Whose function it is, its name, and what makes the one in front: of the original and of what tells who is on.
_REPLACED = (
    (threading.Thread, "start", threads.noting_start),
    (ThreadPoolExecutor, "submit", threads.noting_submit),
    (torch.utils, "swap_tensors", swapped.noting_swap),
)


def recorders() -> tuple[Recorder, ...]:
    """Those that are on, in any thread."""
    return _recorders


def begin(recorder: Recorder) -> None:
    """From now on it is told."""
    global _recorders
    with _lock:
        if not _recorders:
            for owner, name, noting in _REPLACED:
                _replace(owner, name, noting)
        _recorders = (*_recorders, recorder)


def end(recorder: Recorder) -> None:
    """No longer; the last one puts the functions back."""
    global _recorders
    with _lock:
        _recorders = tuple([other for other in _recorders if other is not recorder])
        while not _recorders and _put_back:
            _put_back[-1]()
            _put_back.pop()


def _replace(owner: Any, name: str, noting: Callable[..., Callable[..., Any]]) -> None:
    original = owner.__dict__[name]
    ours = noting(original, recorders)

    def put_back() -> None:
        if owner.__dict__.get(name) is ours:  # what the program put there meanwhile stays
            setattr(owner, name, original)

    _put_back.append(put_back)
    setattr(owner, name, ours)
