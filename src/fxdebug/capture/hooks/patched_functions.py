"""The recordings that are on, and functions of Python's and torch's that others stand in front of meanwhile.

Each is told of what a recording must know of at that moment: threads that are started, tensors that are swapped.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from fxdebug.capture.hooks import thread_origin
from fxdebug.capture.hooks.patch import Attribute, SharedPatch

if TYPE_CHECKING:
    from fxdebug.capture.recorder.recorder import Recorder


def noting_swap(swap: Callable[..., Any], recorders: Callable[[], tuple[Recorder, ...]]) -> Callable[..., Any]:
    """What stands in front of ``swap_tensors``."""

    @functools.wraps(swap)
    def noted(t1: Any, t2: Any) -> Any:
        for recorder in recorders():
            with contextlib.suppress(Exception):  # then torch says why it cannot be done
                recorder.swapped((t1, t2))
        return swap(t1, t2)

    return noted


def recorders() -> tuple[Recorder, ...]:
    """Those that are on, in any thread."""
    return _told.users


def begin(recorder: Recorder) -> None:
    """From now on it is told."""
    _told.begin(recorder)


def end(recorder: Recorder) -> None:
    """No longer; the last one puts the functions back."""
    _told.end(recorder)


_told = SharedPatch(
    Attribute(
        "threading.Thread.start", threading.Thread, "start", lambda found: thread_origin.noting_start(found, recorders)
    ),
    Attribute(
        "concurrent.futures.ThreadPoolExecutor.submit", ThreadPoolExecutor, "submit",
        lambda found: thread_origin.noting_submit(found, recorders),
    ),
    Attribute(
        "torch.utils.swap_tensors", torch.utils, "swap_tensors", lambda found: noting_swap(found, recorders)
    ),
)  # fmt: skip
