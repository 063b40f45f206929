"""Fake tensors or copies in the place of a model's tensors, while a check runs its body.

A substitute takes the place of a parameter, a buffer or another tensor that the body reaches, so that no write of the
body changes the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.replay.reachable import ReachableObjects
from fxdebug.capture.replay.side_effects import scripted_functions_on
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.op_traits import GRADIENT_HOOKS, LAYOUT
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.torch_state import internals


class Substitutes(TorchFunctionMode):
    """Passes substitutes to every operation. If one returns its argument, the body gets the model's own tensor back."""

    def __init__(self) -> None:
        super().__init__()
        self._of_model: dict[int, tuple[Tensor, Tensor]] = {}  # id of the model's tensor → it, and its substitute
        self._back: dict[int, Tensor] = {}  # id of a substitute → the model's tensor
        self._inputs: dict[int, Tensor] = {}  # id of an input → its substitute
        self._originals: dict[int, Tensor] = {}  # id of a substitute → the tensor that it stands for
        self._copies = ArgumentCopies(None, self.own)  # of objects among the inputs, with substitutes in them

    def make(self, tensor: Tensor) -> Tensor:
        """Return a new substitute for a tensor."""
        raise NotImplementedError

    def is_foreign(self, tensor: Tensor) -> bool:
        """Is it a tensor of the model, which needs a substitute?"""
        raise NotImplementedError

    def own(self, argument: Any) -> Any:
        """Return the substitute of an input that is a tensor, and of another object a copy with substitutes in it."""
        if not isinstance(argument, Tensor):
            return self._copies.of(argument)
        if id(argument) not in self._inputs:
            self._inputs[id(argument)] = self._new(argument)
        return self._inputs[id(argument)]

    def _new(self, tensor: Tensor) -> Tensor:
        with internals.DisableTorchFunction():
            substitute = self.make(tensor)
        vars(substitute).update(vars(tensor))  # the program's own attributes
        self._originals[id(substitute)] = tensor
        return substitute

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in GRADIENT_HOOKS and args:
            return func(self._originals.get(id(args[0]), args[0]))
        args, kwargs = internals.tree_map(self._exchanged, (args, kwargs or {}))
        result = func(*args, **kwargs)
        return self._back.get(id(result), result)

    def _exchanged(self, argument: Any) -> Any:
        if not isinstance(argument, Tensor) or not self.is_foreign(argument):
            return argument
        if id(argument) not in self._of_model:
            substitute = self._new(argument)
            self._of_model[id(argument)] = argument, substitute
            self._back[id(substitute)] = argument
        return self._of_model[id(argument)][1]


class FakesCannotTell(Exception):
    """Raised where fake tensors lack what the body asks for; copies are tried next, and no user reads this."""


class FakeTensors(Substitutes):
    """Substitutes that have sizes and no data."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._kind, mode = internals.fake_tensors()
        self._mode = mode(allow_non_fake_inputs=True)

    def make(self, tensor: Tensor) -> Tensor:
        """Return a fake tensor of the same sizes."""
        return self._mode.from_tensor(tensor, static_shapes=True)

    def is_foreign(self, tensor: Tensor) -> bool:
        """Is it a tensor with data?"""
        return not isinstance(tensor, self._kind) and not internals.is_functorch_wrapped_tensor(tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LAYOUT and args and id(args[0]) not in self._originals and not self.is_foreign(args[0]):
            raise FakesCannotTell("how a result lies in memory")
        if func in _READING or (func in _MAKING and _has_tensors_inside((*args, *(kwargs or {}).values()))):
            raise FakesCannotTell("the numbers in memory")
        return super().__torch_function__(func, types, args, kwargs)

    def __enter__(self) -> Any:
        self._mode.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._mode.__exit__(*error)


# C code that reads the memory of its arguments without a check: on fake tensors the process would crash.
_READING = frozenset((Tensor.apply_, Tensor.map_, Tensor.map2_))  # type: ignore[attr-defined]
_MAKING = frozenset(
    (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
)  # these do so for tensors in lists


def _has_tensors_inside(args: Sequence[Any]) -> bool:
    lists = [arg for arg in args if type(arg) in (list, tuple)]
    return any(isinstance(leaf, Tensor) for leaf in internals.tree_leaves(lists))


class _Result(torch.autograd.Function):
    """Makes a copy the result of an operation for autograd, as the original was: not a leaf."""

    @staticmethod
    def forward(context: Any, leaf: Tensor, copies: list[Tensor]) -> Tensor:
        return copies[0]

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return None, None


class TensorCopies(Substitutes):
    """Substitutes that are copies: of the tensors that the module can reach, and of its inputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._reachable = ReachableObjects(module).tensors
        self._storages: dict[int, tuple[Any, Any]] = {}  # by address: the storage, and its copy

    def make(self, tensor: Tensor) -> Tensor:
        """Return a copy with the same strides and gradient, which is a leaf of autograd if the original is one."""
        if tensor.requires_grad and not tensor.is_leaf:
            leaf = torch.empty(0, requires_grad=True)
            with torch.enable_grad():
                return _Result.apply(leaf, [self._copied(tensor.detach())])  # type: ignore[no-any-return]
        copy = self._copied(tensor.detach()).requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            copy.grad = self._copied(tensor.grad)
        return copy

    def _copied(self, tensor: Tensor) -> Tensor:
        """Return a copy with the same strides, in a copy of its storage; tensors of one storage share its copy."""
        is_plain = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
        if type(tensor) not in PLAIN or not is_plain:
            return tensor.clone()
        if tensor.is_conj():  # a view that is conjugated (or negated, below) only when it is read
            return self._copied(tensor.conj()).conj()
        if tensor.is_neg():
            return internals.neg_view(self._copied(internals.neg_view(tensor)))
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage, storage.clone()
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            self._storages[storage._cdata][1], tensor.storage_offset(), tensor.shape, tensor.stride()
        )

    def is_foreign(self, tensor: Tensor) -> bool:
        """Is it a tensor that the module can reach?"""
        return id(tensor) in self._reachable

    def __enter__(self) -> Any:
        self._scripted = scripted_functions_on(self._exchanged)
        self._scripted.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._scripted.__exit__(*error)
