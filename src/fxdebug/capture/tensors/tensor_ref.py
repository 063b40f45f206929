"""The memory behind tensors: which of them share it, and where in it their elements lie."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.torch_state.internals import WeakTensor
from fxdebug.data.values import Value


class TensorId(int):
    """The number of a tensor *object*; its type tells it from an integer among an operation's arguments."""

    __slots__ = ()


class TensorRef(WeakTensor[Tensor]):
    """What is known of a tensor object that was met, and the weak reference to it: called, it gives the tensor."""

    __slots__ = ("gradient", "sight", "skipped", "uid", "value", "version")
    version: int | None
    value: Value
    uid: TensorId
    skipped: bool  # a weight that was not measured, as nobody asked for its numbers
    sight: Any  # the last look at it; none at what is no plain tensor
    gradient: bool  # did it require gradients when it was last met?


class WeightRef:
    """What is known of a weight when the run is over: found where it is registered, as nothing refers to it weakly.

    Torch does not exchange what two tensors are (``swap_tensors``: some conversions of a model) if one of them is.
    """

    __slots__ = ("_key", "_name", "_owner", "gradient", "sight", "skipped", "uid", "value", "version")

    def __init__(self, seen: TensorRef, tensor: Tensor, owner: nn.Module, name: str) -> None:
        self.gradient, self.sight, self.skipped = seen.gradient, seen.sight, seen.skipped
        self.uid, self.value, self.version = seen.uid, seen.value, seen.version
        self._owner, self._name, self._key = weakref.ref(owner), name, id(tensor)

    def __call__(self) -> Tensor | None:
        """The weight, if it is still there."""
        owner = self._owner()
        for place in ("_parameters", "_buffers") if owner is not None else ():
            registered = owner.__dict__.get(place)  # a scripted module may lack them
            found = None if registered is None else registered.get(self._name)
            if found is not None and id(found) == self._key:
                return found  # type: ignore[no-any-return]
        return None


def version_of(tensor: Tensor) -> int | None:
    """How often the tensor has been written to; inference tensors do not count that."""
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor
        return None


class Memory(WeakTensor[Any]):
    """A tensor's memory, referred to weakly: its number, for as long as it is there."""

    __slots__ = ("number",)
    number: int


Dims = tuple[tuple[int, int], ...]


@functools.lru_cache(maxsize=4096)
def dims_of(strides: tuple[int, ...], shape: tuple[int, ...]) -> Dims | None:
    """(stride, size) of the stretches of memory a strided tensor stands for, the finest first.

    The same for all that arrange the same elements differently; ``None`` where elements are met twice.
    """
    merged: list[tuple[int, int]] = []
    for stride, size in sorted(zip(strides, shape)):
        if size == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = merged[-1][0], merged[-1][1] * size
        elif stride == 0 or (merged and stride < merged[-1][0] * merged[-1][1]):
            return None
        else:
            merged.append((stride, size))
    return tuple(merged)
