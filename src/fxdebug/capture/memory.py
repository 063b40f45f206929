"""The memory behind tensors: which of them share it, and where in it their elements lie."""

from __future__ import annotations

import functools
from typing import Any

from fxdebug.capture.torch_state.internals import TensorRef


class Memory(TensorRef[Any]):
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
