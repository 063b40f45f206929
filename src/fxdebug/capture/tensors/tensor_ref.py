"""Weak references to the tensors and storages of a run, with the facts that were recorded of each."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.tensors.tensor_state import TensorState
from fxdebug.capture.torch_state.internals import WeakTensor
from fxdebug.data.values import Value


class TensorId(int):
    """The number of a tensor *object* in one run; its type tells it from an integer among an operation's arguments."""

    __slots__ = ()


class TensorRef(WeakTensor[Tensor]):
    """A weak reference to a tensor object of the run, with the last value that was recorded of it.

    Called, it returns the tensor, or ``None`` once the tensor is gone.
    """

    __slots__ = ("is_unmeasured", "requires_grad", "state", "tensor_id", "value", "version")
    version: int | None
    value: Value
    tensor_id: TensorId
    is_unmeasured: bool  # a weight without statistics, as only operations have read it so far
    state: TensorState | None  # ``None`` for any tensor that is not plain and dense
    requires_grad: bool  # when it was last an argument or a result


class WeightRef:
    """A reference to a weight when the run is over: it finds the weight where a module has registered it.

    A weak reference to the tensor itself would be in the way: torch refuses to exchange two tensors
    (``swap_tensors``, by which some conversions of a model work) if one of them is referred to weakly.
    """

    __slots__ = (
        "_key",
        "_name",
        "_owner",
        "is_unmeasured",
        "requires_grad",
        "state",
        "tensor_id",
        "value",
        "version",
    )

    def __init__(self, ref: TensorRef, tensor: Tensor, owner: nn.Module, name: str) -> None:
        self.requires_grad, self.state, self.is_unmeasured = ref.requires_grad, ref.state, ref.is_unmeasured
        self.tensor_id, self.value, self.version = ref.tensor_id, ref.value, ref.version
        self._owner, self._name, self._key = weakref.ref(owner), name, id(tensor)

    def __call__(self) -> Tensor | None:
        """Return the weight if its module still has it."""
        owner = self._owner()
        for attribute in ("_parameters", "_buffers") if owner is not None else ():
            registered = owner.__dict__.get(attribute)  # a scripted module may lack them
            tensor = None if registered is None else registered.get(self._name)
            if tensor is not None and id(tensor) == self._key:
                return tensor  # type: ignore[no-any-return]
        return None


class StorageRef(WeakTensor[Any]):
    """A weak reference to a storage, with its number in the trace."""

    __slots__ = ("number",)
    number: int
