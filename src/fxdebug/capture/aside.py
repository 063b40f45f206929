"""Our own work, unseen: autograd, torch's modes and functorch do not notice what runs in here."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_functorch_level = torch._C._functorch.peek_interpreter_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack


def nothing_listens() -> bool:
    """Is there no mode and no functorch transform in this thread? Ordinary tensors can then be looked at as they are.

    Inside a mode's own function, that mode is off.
    """
    return not (_function_modes() or _dispatch_modes()) and _functorch_level() is None


class aside:
    """A block whose torch operations are invisible to the user's modes, subclasses and autograd.

    Torch function modes and ``__torch_function__`` are off, dispatch modes are lifted, gradients are
    not recorded and functorch transforms are left. All of it is per thread and back afterwards.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with aside():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ("_functions", "_functorch", "_grad", "_lifted")

    def __enter__(self) -> None:
        self._functorch: Any = torch._C._DisableFuncTorch() if _functorch_level() is not None else None
        self._functions: Any = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._lifted: Any = None
        try:  # at the recursion limit every call may raise that goes deeper than the one before, also one that asks
            if _dispatch_modes():
                lifted = _disable_current_modes()
                lifted.__enter__()
                self._lifted = lifted
            self._grad = torch.is_grad_enabled()
            if self._grad:
                torch._C._set_grad_enabled(False)
        except BaseException:
            try:
                if self._lifted is not None:
                    self._lifted.__exit__(None, None, None)
            finally:
                self._functions.__exit__(None, None, None)
            raise

    def __exit__(self, *error: object) -> None:
        try:
            if self._grad:
                torch._C._set_grad_enabled(True)
            if self._lifted is not None:
                self._lifted.__exit__(None, None, None)
        finally:
            self._functions.__exit__(None, None, None)
            self._functorch = None
