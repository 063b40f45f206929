"""What is known of a tensor object that a run met: its number, and its value when it was last looked at."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.torch_state.internals import TensorRef
from fxdebug.data.values import Value


class Uid(int):
    """The number of a tensor *object*; its type tells it from an integer among an operation's arguments."""

    __slots__ = ()


class Seen(TensorRef[Tensor]):
    """What is known of a tensor object that was met, and the weak reference to it: called, it gives the tensor."""

    __slots__ = ("gradient", "sight", "skipped", "uid", "value", "version")
    version: int | None
    value: Value
    uid: Uid
    skipped: bool  # a weight that was not measured, as nobody asked for its numbers
    sight: Any  # the last look at it; none at what is no plain tensor
    gradient: bool  # did it require gradients when it was last met?


class Registered:
    """What is known of a weight when the run is over: found where it is registered, as nothing refers to it weakly.

    Torch does not exchange what two tensors are (``swap_tensors``: some conversions of a model) if one of them is.
    """

    __slots__ = ("_key", "_name", "_owner", "gradient", "sight", "skipped", "uid", "value", "version")

    def __init__(self, seen: Seen, tensor: Tensor, owner: nn.Module, name: str) -> None:
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
