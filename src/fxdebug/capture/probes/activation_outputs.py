"""Hand over what every call of a run returns, and every activation function, while the tensors are there."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.probes.call_times import CallTimes
from fxdebug.capture.tape.observed_tape import tensors_in
from fxdebug.capture.tape.op_traits import METADATA, function_name
from fxdebug.capture.torch_state.mode_stack import allows_mode_around, without_mode
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.errors import first_line
from fxdebug.operators.names import ACTIVATIONS, canonical

Found = Callable[[int, str, str, Tensor, "Tensor | None"], None]


class ActivationOutputs(TorchFunctionMode):
    """Gives ``found`` the position of the call, its class or operation, a name, the result and the first argument.

    The name is empty for a call, and the operation's for an activation function that is called in a forward.
    """

    def __init__(self, calls: CallTimes, found: Found) -> None:
        super().__init__()
        self.notes: list[tuple[str, str]] = []
        self._calls, self._found = calls, found
        self._owner = get_ident()
        self._leaf = False  # is the open call an activation module? Its operation is not told apart from it

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in METADATA or get_ident() != self._owner or self._leaf:
            return result
        name = canonical(function_name(func))
        if name in ACTIVATIONS and isinstance(result, Tensor):
            self._hand(name, name, result, next(tensors_in(args), None))
        return result

    def around(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward and hand over its first tensor; without this mode where it would switch off a fused kernel."""
        before, self._leaf = self._leaf, not any(True for _ in module.children()) and not module._parameters
        try:
            if allows_mode_around(module):
                result = run(*args, **kwargs)
            else:
                result, _ = without_mode(self, run, args, kwargs)
        finally:
            self._leaf = before
        first = next(tensors_in((result,)), None)
        if first is None and hasattr(result, "values"):  # an output of transformers
            first = next(tensors_in(tuple(result.values())), None) if callable(result.values) else None
        if first is not None:
            self._hand(type(module).__name__, "", first, next(tensors_in((*args, *kwargs.values())), None))
        return result

    def _hand(self, kind: str, name: str, result: Tensor, given: Tensor | None) -> None:
        stack = self._calls.open_calls
        if not stack or get_ident() != self._owner:
            return
        try:
            if type(result) not in (Tensor, nn.Parameter) or result.is_nested or result.device.type == "meta":
                self._note(f"a result is a {type(result).__name__} without data that can be read")
                return
            with untracked(), torch.no_grad():
                self._found(stack[-1], kind, name, result, given)
        except Exception as error:  # the debugger never breaks the debugged
            self._note(f"a result was not measured: {type(error).__name__}: {first_line(error)}")

    def _note(self, what: str) -> None:
        stack = self._calls.open_calls
        path = self._calls.calls[stack[-1]].path if stack else ""
        if (path, what) not in self.notes:
            self.notes.append((path, what))
