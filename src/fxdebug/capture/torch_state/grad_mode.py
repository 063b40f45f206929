"""The thread's state that decides how operations run: gradients, inference mode, autocast."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from fxdebug.capture.torch_state import internals

Context = tuple[bool, bool, tuple[Any, ...] | None]  # gradients, inference mode, autocast


def context_now() -> Context:
    """Return this thread's state: gradients, inference mode, and (device, dtype) of each autocast that is on."""
    if not _any_autocast():
        return CONTEXTS[_gradients()][_inference()]
    autocast = tuple(
        (device, torch.get_autocast_dtype(device)) for device in _AUTOCAST if torch.is_autocast_enabled(device)
    )
    return (_gradients(), _inference(), autocast) if autocast else CONTEXTS[_gradients()][_inference()]


_any_autocast = internals.is_any_autocast_enabled
_gradients, _inference = torch.is_grad_enabled, torch.is_inference_mode_enabled
CONTEXTS: tuple[tuple[Context, ...], ...] = tuple(  # without autocast, by the two flags
    [tuple([(grad, inference, None) for inference in (False, True)]) for grad in (False, True)]
)
_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


@contextlib.contextmanager
def in_context(context: Context) -> Iterator[None]:
    """Set the state that a call began in, for the length of a block."""
    gradients, inference, autocast = context
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(inference))
        for device, _ in context_now()[2] or ():
            stack.enter_context(torch.autocast(device, enabled=False))
        for device, dtype in autocast or ():
            stack.enter_context(torch.autocast(device, dtype=dtype))
        stack.enter_context(torch.set_grad_enabled(gradients))
        yield


class _OpenBlocks(threading.local):
    """The ``no_gradients`` blocks that are open in this thread, in the order in which they began."""

    def __init__(self) -> None:
        self.blocks: list[no_gradients] = []


_open = _OpenBlocks()


class no_gradients:
    """A ``torch.no_grad()`` for blocks that may overlap without being nested.

    If the block that began first also ends first, gradients stay off until the second ends; the second then restores
    the mode that the first had found.

    >>> with no_gradients():
    ...     torch.is_grad_enabled()
    False
    """

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        _open.blocks.append(self)
        internals.set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        blocks = _open.blocks
        if blocks and blocks[-1] is self:
            blocks.pop()
            internals.set_grad_enabled(self._before)
        elif self in blocks:  # otherwise it began in another thread: this thread's mode is not its to restore
            later = blocks[blocks.index(self) + 1]
            blocks.remove(self)
            later._before = self._before
