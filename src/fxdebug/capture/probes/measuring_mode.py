"""The mode below the probes that look at torch functions: it never raises, and steps aside where it must not be on."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.hooks.errors_to_notes import Guard
from fxdebug.capture.tape.compiled_regions import CompiledRegions
from fxdebug.capture.tape.op_traits import METADATA, function_name
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.callers_frame import as_called_there
from fxdebug.capture.torch_state.mode_stack import allows_mode_around, remove_mode, without_mode
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch, may_be_traced
from fxdebug.capture.torch_state.uncounted import uncounted

_Mode = TypeVar("_Mode", bound="MeasuringMode")


class MeasuringMode(TorchFunctionMode):
    """Looks at every torch function of the thread that runs the model: :meth:`before_op` and :meth:`after_op`.

    It is off in what torch traces, in what ``torch.compile`` compiles, control flow as in ``torch.cond`` included, and
    in modules that a mode would deprive of a fused kernel. ``guard`` has the notes on what was not looked at; ``where``
    returns the path of the module that runs.

    >>> class Names(MeasuringMode):
    ...     def after_op(self, func, args, kwargs, result, before):
    ...         print(self.name_of(func))
    >>> x = torch.ones(2)
    >>> with Names(lambda: ""):
    ...     result = x.relu() + 1
    relu
    add
    """

    def __init__(self, where: Callable[[], str]) -> None:
        super().__init__()
        self.guard = Guard(where)
        self._owner = get_ident()
        self._regions = CompiledRegions(self)

    def before_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Look at an operation that is about to run; return what :meth:`after_op` is to be given."""

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        """Look at an operation that has run."""
        raise NotImplementedError

    def after_fused(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Look at a forward that has run without this mode, since the mode would have switched off its fused kernel."""

    @staticmethod
    def name_of(func: Any) -> str:
        """Return the name of a torch function, as graphs have it."""
        return function_name(func)

    @uncounted
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA or get_ident() != self._owner or (may_be_traced() and is_traced_by_torch()):
            return func(*args, **(kwargs or {}))
        before = self.guard("an operation", self.before_op, func, args, kwargs or {})
        result = as_called_there(func, args, kwargs)
        self.guard("an operation", self.after_op, func, args, kwargs or {}, result, before)
        return result

    def around(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward; without this mode where it would switch off a fused kernel."""
        if get_ident() != self._owner or allows_mode_around(module, args, kwargs):
            return run(*args, **kwargs)
        result, was_on = without_mode(self, run, args, kwargs)
        if was_on and isinstance(module, nn.Module) and not isinstance(module, torch.jit.ScriptModule):
            self.guard("a fused kernel", self.after_fused, run, args, kwargs, result)
        return result

    # On and off ----------------------------------------------------------------------------------

    def __enter__(self: _Mode) -> _Mode:
        self._regions.begin()
        internals.push_on_torch_function_stack(self)
        return self

    def __exit__(self, *error: object) -> None:
        remove_mode(self)  # wherever on the stack it is by that time
        self._regions.end()

    def enter_region(self, function: Any, args: Any, kwargs: Any) -> None:
        """Note that compiled code is about to run."""
        self.guard.note("what torch.compile compiled ran as one piece: operations inside were not looked at")

    def leave_region(self, region: Any, result: Any) -> None:
        """Leave the result of compiled code alone."""
