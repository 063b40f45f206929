"""Grad, inference and autocast blocks of a body, as calls in its graph: each operation runs in the state it ran in.

They are entered and left by functions, so that generated code has them too. What is left open when an operation in
the middle raises is closed by :func:`closed`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import Context

Switch = tuple[Callable[..., Any], tuple[Any, ...]]


class Blocks:
    """The calls that lead from one state to the next, beginning in the state a body begins in."""

    def __init__(self, base: Context) -> None:
        self._base = base
        self._now = base
        self._open = 0

    def switches(self, wanted: Context) -> list[Switch]:
        """The calls before an operation that ran in this state."""
        gradients, *blocks = self._now
        found: list[Switch] = []
        if tuple(blocks) != wanted[1:]:  # in Python blocks are nested, but which is inside which is on no tape
            found += [(leave_block, ())] * self._open
            entered = _entering(self._base, wanted)
            self._open = len(entered)
            found += entered
        if gradients != wanted[0] or self._now[1] != wanted[1]:  # inference mode brings its own
            found.append((internals.set_grad_enabled, (wanted[0],)))
        self._now = wanted
        return found


def _entering(base: Context, wanted: Context) -> list[Switch]:
    before, after = dict(base[2] or ()), dict(wanted[2] or ())
    found: list[Switch] = [] if base[1] == wanted[1] else [(enter_inference_mode, (wanted[1],))]
    found += [(disable_autocast, (device,)) for device in before if device not in after]
    found += [(enter_autocast, (device, dtype)) for device, dtype in after.items() if before.get(device) != dtype]
    return found


class _Open(threading.local):
    """The blocks of generated functions that are open in this thread, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []


_open = _Open()


def _enter(block: Any) -> None:
    block.__enter__()
    _open.blocks.append(block)


def enter_autocast(device: str, dtype: torch.dtype) -> None:
    """Begin an autocast block."""
    _enter(torch.autocast(device, dtype=dtype))


def disable_autocast(device: str) -> None:
    """Begin a block without autocast."""
    _enter(torch.autocast(device, enabled=False))


def enter_inference_mode(on: bool) -> None:
    """Begin a block of inference mode, or one without it."""
    _enter(torch.inference_mode(on))


def leave_block() -> None:
    """End the innermost block."""
    _open.blocks.pop().__exit__(None, None, None)


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """A block after which no block is open that was not open before, whatever was raised."""
    before = len(_open.blocks)
    try:
        yield
    finally:
        while len(_open.blocks) > before:
            leave_block()
