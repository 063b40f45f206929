"""The state of a tensor at one moment: its layout, which many tensors share, its place in memory and its version."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fxdebug.capture.tensors.special_tensors import PLAIN, is_ordinary
from fxdebug.capture.tensors.type_names import name_of
from fxdebug.native.dispatch import natively
from fxdebug.stats.accelerator import is_off_cpu
from fxdebug.stats.cpu_sums import is_freed, is_one_piece
from fxdebug.stats.host_batch import fits

_new = tuple.__new__  # of a named tuple: its own constructor is a function in Python
LAYOUTS_KEPT = 20_000  # at a time: lengths and strides come and go

Dims = tuple[tuple[int, int], ...]
"""(stride, size) of the stretches of memory that a strided tensor covers, the smallest stride first."""


@functools.lru_cache(maxsize=4096)
def dims_of(strides: tuple[int, ...], shape: tuple[int, ...]) -> Dims | None:
    """Return the stretches of memory that a strided tensor covers; ``None`` where elements share memory.

    Tensors that arrange the same elements differently cover the same stretches.

    >>> dims_of((4, 1), (3, 4)) == dims_of((1, 4), (4, 3)) == ((1, 12),)
    True
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


class TensorLayout:
    """The facts that tensors share if they differ only in their memory, their version and their numbers."""

    __slots__ = (
        "bytes_needed", "count", "device", "dims", "dtype", "is_off_cpu", "is_one_piece", "is_small", "offset", "shape",
        "stride", "torch_dtype",
    )  # fmt: skip

    def __init__(self, tensor: Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.stride: tuple[int, ...] = tensor.stride()
        self.torch_dtype: torch.dtype = tensor.dtype
        self.dtype, self.device = name_of(tensor.dtype), name_of(tensor.device)
        self.offset: int = tensor.storage_offset()
        self.count = tensor.numel()
        self.bytes_needed: int = self.offset * tensor.itemsize + tensor.nbytes  # of memory; an expanded tensor: fewer
        self.is_off_cpu = is_off_cpu(tensor)
        is_plain = not (tensor.is_neg() or tensor.is_conj())
        self.dims: Dims | None = None  # stays so for a negated or conjugated view: memory holds other numbers
        if is_plain:
            self.dims = ((1, self.count),) if tensor.is_contiguous() else dims_of(self.stride, self.shape)
        is_piece = is_plain and not self.is_off_cpu and tensor.is_contiguous()
        self.is_one_piece = is_piece and is_one_piece(self.torch_dtype, self.count)
        self.is_small = (  # and in one piece: it can be measured with others
            self.dims == ((1, self.count),) and not self.is_off_cpu and fits(self.torch_dtype, self.count)
        )


class TensorState(NamedTuple):
    """The state of one tensor at one moment; inference tensors have no version: ``None``."""

    layout: TensorLayout
    storage: int  # the address of torch's storage object
    address: int  # of its first element
    version: int | None


_layouts: dict[tuple[Any, ...], TensorLayout] = {}  # by all facts of a layout: a look-up takes a quarter of making one


def version_of(tensor: Tensor) -> int | None:
    """Return how often a tensor has been written to; ``None`` for inference tensors, which do not count writes."""
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor
        return None


@natively("state_of", TensorLayout, TensorState)
def state_of(tensor: Tensor) -> TensorState | None:
    """Return the state of a plain dense tensor, as nearly all are; ``None`` for any other.

    Call it inside :class:`~fxdebug.capture.torch_state.untracked.untracked`, or where no mode is active.
    """
    if type(tensor) not in PLAIN or not is_ordinary(tensor):
        return None
    storage, dtype = tensor.untyped_storage(), tensor.dtype
    is_conj = dtype.is_complex and tensor.is_conj()
    key = tensor.shape, tensor.stride(), tensor.storage_offset(), dtype, tensor.device, tensor.is_neg(), is_conj
    layout = _layouts.get(key)
    if layout is None:
        if len(_layouts) >= LAYOUTS_KEPT:
            _layouts.clear()
        layout = _layouts[key] = TensorLayout(tensor)
    if storage.nbytes() < layout.bytes_needed and is_freed(tensor):
        return None
    return _new(TensorState, (layout, storage._cdata, tensor.data_ptr(), version_of(tensor)))


def is_unmoved(before: TensorState | None, tensor: Tensor) -> bool:
    """Is a tensor at the address of ``before``, with the same shape, strides and dtype?

    An assignment to ``tensor.data`` moves a tensor and leaves its version alone. Call it only where :func:`state_of`
    may be called.
    """
    if before is None:
        return state_of(tensor) is None  # its memory may be new
    layout = before.layout
    try:
        is_there = tensor.data_ptr() == before.address or is_freed(tensor)  # memory that was freed: nothing was written
        is_alike = tensor.shape == layout.shape and tensor.stride() == layout.stride
        return is_there and is_alike and tensor.dtype is layout.torch_dtype
    except RuntimeError:  # it has become a tensor without memory
        return False
