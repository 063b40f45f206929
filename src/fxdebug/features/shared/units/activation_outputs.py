"""Hand over what every call of a run returns, and every activation function, while the tensors are there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import MeasuringMode, is_in_transform, named_tensors, tensors_in, untracked
from fxdebug.errors import with_article
from fxdebug.features.shared.times.call_times import CallTimes
from fxdebug.features.shared.units.origins import Origin, origin_of
from fxdebug.operators.activation_functions import BOUNDS, function_of
from fxdebug.operators.names import ACTIVATIONS, canonical

# Operations that multiply what they are given by weights, and those that only put tensors together.
WEIGHTED = frozenset(
    "linear bilinear matmul mm bmm addmm baddbmm einsum conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split()
)
JOINING = frozenset("cat concat concatenate stack hstack vstack batch_norm layer_norm group_norm instance_norm".split())

Found = Callable[[int, str, str, Tensor, "Tensor | None", Origin], None]


class ActivationOutputs(MeasuringMode):
    """Gives ``found`` the position of the call, its class or operation, a name, the result, and the first argument.

    Last come the units of the result. The name is empty for a call, and the operation's for an activation function that
    is called in a forward.
    """

    def __init__(self, calls: CallTimes, found: Found) -> None:
        super().__init__(calls.path)
        self._calls, self._found = calls, found
        self._made: tuple[weakref.ref[Tensor], Origin] | None = None  # the last result, and its units
        self._leaf = False  # is the open call an activation module? Its operation is not told apart from it
        self._results: dict[int, tuple[weakref.ref[Tensor], str, str]] = {}  # of functions with bounds, by id
        self.read: set[tuple[str, str]] = set()  # path and name of those functions that a layer with weights reads

    def before_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the name of an activation function with its argument, and the argument's value before it ran."""
        name = "" if self._leaf else canonical(self.name_of(func))
        if name not in ACTIVATIONS:
            return None
        given = next(tensors_in(args), None)
        writes = self.name_of(func).endswith("_") or kwargs.get("inplace")
        return name, given, _kept(given) if writes else given

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        """Hand over what an activation function returned; follow what another operation did with such results."""
        if before is None:
            self._follow(canonical(self.name_of(func)), args, kwargs, result)
        elif isinstance(result, Tensor):
            name, given, kept = before
            self._hand(name, name, result, given, [], kept)

    def around(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward and hand over its first tensor; without this mode where it would switch off a fused kernel."""
        given = self.guard("what a call was given", self._given, module, args, kwargs)
        before, self._leaf = self._leaf, not _has_children(module) and not module._parameters
        try:
            result = super().around(module, run, args, kwargs)
        finally:
            self._leaf = before
        if given is not None:
            self.guard("a result", self._hand_first, module, result, *given)
        return result

    def _given(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the first tensor that a call is given, as it is and as it was."""
        given = next(tensors_in((*args, *kwargs.values())), None)
        return given, _kept(given) if getattr(module, "inplace", False) is True else given

    def _hand_first(self, module: nn.Module, result: Any, given: Tensor | None, kept: Tensor | None) -> None:
        first = next((tensor for _, tensor in named_tensors(result)), None)
        if first is not None:
            self._hand(type(module).__name__, "", first, given, _weights_of(module), kept)

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
        if function_of(kind) in BOUNDS:
            self._results[id(result)] = weakref.ref(result), self._calls.path(), name
        if type(result) not in (Tensor, nn.Parameter) or result.is_nested or result.device.type == "meta":
            self.guard.note(f"a result is {with_article(type(result).__name__)} without data that can be read")
            return
        if is_in_transform():
            self.guard.note("what runs inside a functorch transform (vmap, grad, …) was not measured")
            return
        origin = self._origin(kind, result, given, weights)
        with untracked(), torch.no_grad():
            self._found(call, kind, name, result, kept, origin)

    def _follow(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Follow the results of functions with bounds to the layers that read them; a product with others ends it."""
        if not self._results:
            return
        given = list(tensors_in((*args, *kwargs.values())))
        known = [found for tensor in given if (found := self._results.get(id(tensor))) and found[0]() is tensor]
        if not known:
            return
        if name in WEIGHTED:
            self.read.update((path, function) for _, path, function in known)
        elif isinstance(result, Tensor) and (len(given) == 1 or name in JOINING):
            self._results[id(result)] = weakref.ref(result), *known[0][1:]

    def _origin(self, kind: str, result: Tensor, given: Tensor | None, weights: Sequence[int]) -> Origin:
        """Return the units of a result; of calls that return the same tensor, those of the innermost one."""
        last, units = (None, None) if self._made is None else (self._made[0](), self._made[1])
        if result is last and units is not None:
            return units
        before = units if given is not None and given is last else None
        made = origin_of(kind, self._calls.path(), weights, result.shape, () if given is None else given.shape, before)
        self._made = weakref.ref(result), made
        return made


def _kept(given: Tensor | None) -> Tensor | None:
    """Return a copy of what an operation is about to overwrite."""
    if type(given) not in (Tensor, nn.Parameter) or given is None or given.is_nested:
        return given
    with untracked(), torch.no_grad():
        return given.detach().clone()


def _weights_of(module: nn.Module) -> list[int]:
    """Return the numbers of dimensions of the parameters of a module without children."""
    if _has_children(module):
        return []
    return [parameter.dim() for parameter in module._parameters.values() if parameter is not None]


def _has_children(module: nn.Module) -> bool:
    return any(child is not None for child in module._modules.values())
