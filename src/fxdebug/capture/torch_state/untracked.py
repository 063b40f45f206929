"""Our own work, unseen: autograd, torch's modes, its tracer and functorch do not notice what runs in here."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from fxdebug.capture.torch_state import internals

P = ParamSpec("P")
R = TypeVar("R")
_is_tracing = internals.is_tracing
_functorch_level = internals.functorch_level
_dispatch_modes = internals.len_torch_dispatch_stack
_function_modes = internals.len_torch_function_stack
_gradients = torch.is_grad_enabled


def no_modes_active() -> bool:
    """Is there no mode and no functorch transform in this thread? Ordinary tensors can then be looked at as they are.

    Inside a mode's own function, that mode is off.
    """
    return not (_function_modes() or _dispatch_modes()) and _functorch_level() is None


def is_quiet() -> bool:
    """Does nothing listen in this thread, and are no gradients recorded? Nothing then need be put aside."""
    return not _gradients() and no_modes_active()


class untracked:
    """A block whose torch operations are invisible to the user's modes, subclasses and autograd.

    Torch function modes and ``__torch_function__`` are off, dispatch modes are lifted, gradients are
    not recorded, ``torch.jit`` traces nothing and functorch transforms are left. All of it is per thread and back
    afterwards.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with untracked():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ("_functions", "_functorch", "_grad", "_lifted", "_traced")

    def __enter__(self) -> None:
        self._lifted: Any = None
        self._traced: Any = None
        self._grad = False
        self._functorch: Any = None
        self._functions: Any = internals.DisableTorchFunction()
        _here.blocks.append(self)
        try:  # at the recursion limit every call may raise that goes deeper than the one before, also one that asks
            self._functorch = internals.DisableFuncTorch() if _functorch_level() is not None else None
            self._functions.__enter__()
            if _dispatch_modes():
                lifted = internals.disable_current_modes()
                lifted.__enter__()
                self._lifted = lifted
            self._grad = torch.is_grad_enabled()
            if self._grad:
                internals.set_grad_enabled(False)
            if _is_tracing():
                self._traced = internals.get_tracing_state()
                internals.set_tracing_state(None)
        except BaseException:  # in place: there may be no room for one more call
            try:
                if self._grad:
                    internals.set_grad_enabled(True)
                if self._lifted is not None:
                    self._lifted.__exit__(None, None, None)
            finally:
                self._functions.__exit__(None, None, None)
                if _here.blocks and _here.blocks[-1] is self:
                    _here.blocks.pop()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            try:
                if self._traced is not None:
                    internals.set_tracing_state(self._traced)
            finally:
                if self._grad:
                    internals.set_grad_enabled(True)
            lifted, self._lifted = self._lifted, None
            if lifted is not None:
                lifted.__exit__(None, None, None)
        finally:
            self._functions.__exit__(None, None, None)
            self._functorch = None
            blocks = _here.blocks
            if blocks and blocks[-1] is self:
                blocks.pop()


class _Here(threading.local):
    """The blocks that are open in this thread, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[untracked] = []


_here = _Here()


def closes_untracked(run: Callable[P, R]) -> Callable[P, R]:
    """A function after which every block is left that was entered in it.

    An interrupt (Ctrl-C) may come at the very moment at which one is to be left.
    """

    @functools.wraps(run)
    def left(*args: P.args, **kwargs: P.kwargs) -> R:
        count = len(_here.blocks)
        try:
            return run(*args, **kwargs)
        finally:
            while len(_here.blocks) > count:
                _here.blocks.pop().__exit__()

    return left
