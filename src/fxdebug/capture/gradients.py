"""Blocks without gradients that may end in any order."""

from __future__ import annotations

import threading

import torch

from fxdebug.capture.torch_state import internals


class _Open(threading.local):
    """The blocks that are open in this thread, in the order in which they began."""

    def __init__(self) -> None:
        self.blocks: list[no_gradients] = []


_open = _Open()


class no_gradients:
    """``torch.no_grad()``, but two of them may overlap without being nested.

    A block that ends before one that began later leaves gradients off; that one then puts back the
    mode that the first one found.

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
        elif self in blocks:  # otherwise it ends in another thread than it began in: the mode is a thread's own
            later = blocks[blocks.index(self) + 1]
            blocks.remove(self)
            later._before = self._before
