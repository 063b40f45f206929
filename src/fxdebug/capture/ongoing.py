"""The recordings that are on, and functions of Python's and torch's that others stand in front of meanwhile.

Each is told of what a recording must know of at that moment: threads that are started, tensors that are swapped.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from fxdebug.capture import swapped, threads
from fxdebug.capture.hooks.patch import Attribute, SharedPatch

if TYPE_CHECKING:
    from fxdebug.capture.recorder import Recorder


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
        "threading.Thread.start", threading.Thread, "start", lambda found: threads.noting_start(found, recorders)
    ),
    Attribute(
        "concurrent.futures.ThreadPoolExecutor.submit", ThreadPoolExecutor, "submit",
        lambda found: threads.noting_submit(found, recorders),
    ),
    Attribute(
        "torch.utils.swap_tensors", torch.utils, "swap_tensors", lambda found: swapped.noting_swap(found, recorders)
    ),
)  # fmt: skip
