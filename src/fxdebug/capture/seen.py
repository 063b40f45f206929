"""What is known of a tensor object that a run met: its number, and its value when it was last looked at."""

from __future__ import annotations

import weakref

from torch import Tensor

from fxdebug.values import Value


class Uid(int):
    """The number of a tensor *object*; its type tells it from an integer among an operation's arguments."""

    __slots__ = ()


class Seen(weakref.ref[Tensor]):
    """What is known of a tensor object that was met, and the weak reference to it: called, it gives the tensor."""

    __slots__ = ("gradient", "skipped", "uid", "value", "version")
    version: int | None
    value: Value
    uid: Uid
    skipped: bool  # a weight that was not measured, as nobody asked for its numbers
    gradient: bool  # did it require gradients when it was last met?


def version_of(tensor: Tensor) -> int | None:
    """How often the tensor has been written to; inference tensors do not count that."""
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor
        return None
