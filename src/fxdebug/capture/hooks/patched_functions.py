"""Functions of Python and torch that are patched while recordings are on, and the recorders that they report to.

A recorder must know of a started thread, of tensors about to be swapped, and of a CUDA graph that is captured or
replayed, at the moment when it happens.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from fxdebug.capture.hooks import thread_origin
from fxdebug.capture.hooks.observers import CallRecorder
from fxdebug.capture.hooks.patch import Attribute, SharedPatch


def reporting_swap(
    swap: Callable[..., Any], recorders: Callable[[], tuple[CallRecorder[Any], ...]]
) -> Callable[..., Any]:
    """Return the replacement of ``swap_tensors``."""

    @functools.wraps(swap)
    def reported(t1: Any, t2: Any) -> Any:
        for recorder in recorders():
            with contextlib.suppress(Exception):  # then torch's own error says why they cannot be swapped
                recorder.before_swap((t1, t2))
        return swap(t1, t2)

    return reported


def reporting_graph(
    launch: Callable[..., Any], replays: bool, recorders: Callable[[], tuple[CallRecorder[Any], ...]]
) -> Callable[..., Any]:
    """Return the replacement of a method of ``torch.cuda.CUDAGraph``, which begins a capture or replays one."""

    @functools.wraps(launch)
    def reported(graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = launch(graph, *args, **kwargs)
        for recorder in recorders():
            recorder.on_cuda_graph(replays=replays)
        return result

    return reported


def recorders() -> tuple[CallRecorder[Any], ...]:
    """Return the recorders that are on, in any thread."""
    return _patches.users


def begin(recorder: CallRecorder[Any]) -> None:
    """Report to this recorder from now on; the first one patches the functions."""
    _patches.begin(recorder)


def end(recorder: CallRecorder[Any]) -> None:
    """Stop reporting to this recorder; the last one to end restores the functions."""
    _patches.end(recorder)


_patches = SharedPatch(
    Attribute(
        "threading.Thread.start",
        threading.Thread,
        "start",
        lambda original: thread_origin.noting_start(original, recorders),
    ),
    Attribute(
        "concurrent.futures.ThreadPoolExecutor.submit",
        ThreadPoolExecutor,
        "submit",
        lambda original: thread_origin.noting_submit(original, recorders),
    ),
    Attribute(
        "torch.cuda.CUDAGraph.capture_begin",
        torch.cuda.CUDAGraph,
        "capture_begin",
        lambda original: reporting_graph(original, False, recorders),
    ),
    Attribute(
        "torch.cuda.CUDAGraph.replay",
        torch.cuda.CUDAGraph,
        "replay",
        lambda original: reporting_graph(original, True, recorders),
    ),
    Attribute(
        "torch.utils.swap_tensors", torch.utils, "swap_tensors", lambda original: reporting_swap(original, recorders)
    ),
)
