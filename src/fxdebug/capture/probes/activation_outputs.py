"""Hand over what every call of a run returns, and every activation function, while the tensors are there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.probes.call_times import CallTimes
from fxdebug.capture.tape.observed_tape import tensors_in
from fxdebug.capture.tape.op_traits import METADATA, function_name
from fxdebug.capture.torch_state.callers_frame import as_called_there
from fxdebug.capture.torch_state.mode_stack import allows_mode_around, without_mode
from fxdebug.capture.torch_state.module_members import children_of
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.errors import first_line, with_article
from fxdebug.operators.names import ACTIVATIONS, canonical
from fxdebug.operators.units import Origin, origin_of

Found = Callable[[int, str, str, Tensor, "Tensor | None", Origin], None]


class ActivationOutputs(TorchFunctionMode):
    """Gives ``found`` the position of the call, its class or operation, a name, the result, and the first argument.

    Last come the units of the result. The name is empty for a call, and the operation's for an activation function that
    is called in a forward.
    """

    def __init__(self, calls: CallTimes, found: Found) -> None:
        super().__init__()
        self.notes: list[tuple[str, str]] = []
        self._calls, self._found = calls, found
        self._owner = get_ident()
        self._made: tuple[weakref.ref[Tensor], Origin] | None = None  # the last result, and its units
        self._leaf = False  # is the open call an activation module? Its operation is not told apart from it

    @uncounted
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA or get_ident() != self._owner or self._leaf:
            return func(*args, **(kwargs or {}))
        called = function_name(func)
        name = canonical(called)
        if name not in ACTIVATIONS:
            return as_called_there(func, args, kwargs)
        given = next(tensors_in(args), None)
        kept = _kept(given) if called.endswith("_") or (kwargs or {}).get("inplace") else given
        result = as_called_there(func, args, kwargs)
        if isinstance(result, Tensor):
            self._hand(name, name, result, given, [], kept)
        return result

    def around(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward and hand over its first tensor; without this mode where it would switch off a fused kernel."""
        given = next(tensors_in((*args, *kwargs.values())), None)
        kept = _kept(given) if getattr(module, "inplace", False) is True else given
        before, self._leaf = self._leaf, not any(True for _ in children_of(module)) and not module._parameters
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
            self._hand(type(module).__name__, "", first, given, _weights_of(module), kept)
        return result

    def _hand(
        self,
        kind: str,
        name: str,
        result: Tensor,
        given: Tensor | None,
        weights: Sequence[int],
        kept: Tensor | None,
    ) -> None:
        """Hand over a result; ``kept`` has the numbers that it was given, also where they were overwritten."""
        call = self._calls.innermost()
        if call is None or get_ident() != self._owner:
            return
        try:
            if type(result) not in (Tensor, nn.Parameter) or result.is_nested or result.device.type == "meta":
                self._note(f"a result is {with_article(type(result).__name__)} without data that can be read")
                return
            origin = self._origin(kind, result, given, weights)
            with untracked(), torch.no_grad():
                self._found(call, kind, name, result, kept, origin)
        except Exception as error:  # the debugger never breaks the debugged
            self._note(f"a result was not measured: {type(error).__name__}: {first_line(error)}")

    def _origin(self, kind: str, result: Tensor, given: Tensor | None, weights: Sequence[int]) -> Origin:
        """Return the units of a result; of calls that return the same tensor, those of the innermost one."""
        last, units = (None, None) if self._made is None else (self._made[0](), self._made[1])
        if result is last and units is not None:
            return units
        before = units if given is not None and given is last else None
        made = origin_of(kind, self._calls.path(), weights, result.shape, () if given is None else given.shape, before)
        self._made = weakref.ref(result), made
        return made

    def _note(self, what: str) -> None:
        note = self._calls.path(), what
        if note not in self.notes:
            self.notes.append(note)


def _kept(given: Tensor | None) -> Tensor | None:
    """Return a copy of what an operation is about to overwrite."""
    if type(given) not in (Tensor, nn.Parameter) or given is None or given.is_nested:
        return given
    with untracked(), torch.no_grad():
        return given.detach().clone()


def _weights_of(module: nn.Module) -> list[int]:
    """Return the numbers of dimensions of the parameters of a module without children."""
    if any(True for _ in children_of(module)):
        return []
    return [parameter.dim() for parameter in module._parameters.values() if parameter is not None]
