"""The modes that are on while a body is traced: torch functions are handed to the tracer, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from fxdebug.capture import reasons
from fxdebug.capture.standin import Mismatch
from fxdebug.capture.torch_state import internals


class Guide(TorchFunctionMode):
    """Hands every torch function to ``operation`` instead of running it."""

    def __init__(self, operation: Callable[..., Any]) -> None:
        super().__init__()
        self._operation = operation

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operation(func, args, kwargs or {})


class NothingWritten(internals.TorchDispatchMode):
    """What is written past the guide (by scripted code, with torch functions off) must not be written twice."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            raise Mismatch(reasons.BELOW_PYTHON(operation=func))
        with internals.DisableTorchFunction():  # the guide is still on
            return func(*args, **(kwargs or {}))
