"""Blocks whose torch operations are untracked: autograd, modes, ``torch.jit`` and functorch do not notice them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.uncounted import uncounted

P = ParamSpec("P")
R = TypeVar("R")
_is_tracing = internals.is_tracing
_functorch_level = internals.functorch_level
_dispatch_modes = internals.len_torch_dispatch_stack
_function_modes = internals.len_torch_function_stack
_gradients = torch.is_grad_enabled


def no_modes_active() -> bool:
    """Is there no mode and no functorch transform in this thread? If so, plain tensors can be read as they are.

    A mode does not count inside its own function, where torch switches it off.
    """
    return not (_function_modes() or _dispatch_modes()) and _functorch_level() is None


def is_in_transform() -> bool:
    """Does a functorch transform (vmap, grad, jvp, …) run in this thread? It has a separate graph of autograd.

    >>> torch.vmap(lambda x: x + is_in_transform())(torch.zeros(2)), is_in_transform()
    (tensor([1., 1.]), False)
    """
    return _functorch_level() is not None


def is_unobserved() -> bool:
    """Is there no mode in this thread, and are no gradients recorded? :class:`untracked` is then not needed."""
    return not _gradients() and no_modes_active()


class untracked:
    """A block whose torch operations are invisible to the user's modes, subclasses and autograd.

    Torch function modes and ``__torch_function__`` are off, dispatch modes are removed, gradients are not recorded,
    ``torch.jit`` traces nothing and functorch transforms are left. All of this is state of the thread, and is restored
    at the end of the block.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with untracked():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ("_dispatch", "_functions", "_functorch", "_grad", "_traced")

    def __enter__(self) -> None:
        self._dispatch: Any = None
        self._traced: Any = None
        self._grad = False
        self._functorch: Any = None
        self._functions: Any = internals.DisableTorchFunction()
        _open.blocks.append(self)
        try:  # at the recursion limit any call may raise
            self._functorch = internals.DisableFuncTorch() if _functorch_level() is not None else None
            self._functions.__enter__()
            if _dispatch_modes():
                dispatch = internals.disable_current_modes()
                dispatch.__enter__()
                self._dispatch = dispatch
            self._grad = torch.is_grad_enabled()
            if self._grad:
                internals.set_grad_enabled(False)
            if _is_tracing():
                self._traced = internals.get_tracing_state()
                internals.set_tracing_state(None)
        except BaseException:  # not by a call of __exit__: it may exceed the recursion limit
            try:
                if self._grad:
                    internals.set_grad_enabled(True)
                if self._dispatch is not None:
                    self._dispatch.__exit__(None, None, None)
            finally:
                self._functions.__exit__(None, None, None)
                if _open.blocks and _open.blocks[-1] is self:
                    _open.blocks.pop()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            try:
                if self._traced is not None:
                    internals.set_tracing_state(self._traced)
            finally:
                if self._grad:
                    internals.set_grad_enabled(True)
            dispatch, self._dispatch = self._dispatch, None
            if dispatch is not None:
                dispatch.__exit__(None, None, None)
        finally:
            self._functions.__exit__(None, None, None)
            self._functorch = None
            blocks = _open.blocks
            if blocks and blocks[-1] is self:
                blocks.pop()


class _OpenBlocks(threading.local):
    """The ``untracked`` blocks that are open in this thread, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[untracked] = []


_open = _OpenBlocks()


@uncounted
def closes_untracked(run: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it exits every ``untracked`` block that was entered in it.

    An interrupt (Ctrl-C) may come at the very moment at which a block is to be exited.
    """

    @functools.wraps(run)
    def closing(*args: P.args, **kwargs: P.kwargs) -> R:
        count = len(_open.blocks)
        try:
            return run(*args, **kwargs)
        finally:
            while len(_open.blocks) > count:
                _open.blocks.pop().__exit__()

    return closing
