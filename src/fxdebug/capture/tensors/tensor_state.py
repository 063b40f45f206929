"""A tensor as it is at one moment: its form, which many share, and where and in which version it lies."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fxdebug.capture.tensors.describe import is_ordinary, name_of
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.tensors.tensor_ref import Dims, dims_of, version_of
from fxdebug.stats.accelerator import is_elsewhere
from fxdebug.stats.cpu_sums import is_freed

MOST_FORMS = 20_000  # remembered at a time: lengths and strides come and go


class TensorLayout:
    """What tensors have in common that differ in their place and their numbers only."""

    __slots__ = ("count", "device", "dims", "dtype", "elsewhere", "kind", "offset", "shape", "stride")

    def __init__(self, tensor: Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.stride: tuple[int, ...] = tensor.stride()
        self.kind: torch.dtype = tensor.dtype
        self.dtype, self.device = name_of(tensor.dtype), name_of(tensor.device)
        self.offset: int = tensor.storage_offset()
        self.count = tensor.numel()
        self.elsewhere = is_elsewhere(tensor)
        is_plain = not (tensor.is_neg() or tensor.is_conj())
        self.dims: Dims | None = None  # (stride, size) of where it lies in memory, the finest first
        if is_plain:
            self.dims = ((1, self.count),) if tensor.is_contiguous() else dims_of(self.stride, self.shape)


class TensorState(NamedTuple):
    """One look at a tensor; the version is ``None`` for inference tensors, which have none."""

    form: TensorLayout
    storage: int  # the address of torch's object for its memory
    address: int  # of its first element
    version: int | None


_forms: dict[tuple[Any, ...], TensorLayout] = {}  # by all that a form is made of: a look-up is a quarter of making one


def state_of(tensor: Tensor) -> TensorState | None:
    """A look at a dense tensor that is what it seems, as nearly all are; ``None`` for any other.

    Call it inside :class:`~fxdebug.capture.torch_state.untracked.untracked`, or where nothing listens.
    """
    if type(tensor) not in PLAIN or not is_ordinary(tensor) or is_freed(tensor):
        return None
    arranged = tensor.shape, tensor.stride(), tensor.storage_offset()
    key = *arranged, tensor.dtype, tensor.device, tensor.is_neg(), tensor.is_conj()
    form = _forms.get(key)
    if form is None:
        if len(_forms) >= MOST_FORMS:
            _forms.clear()
        form = _forms[key] = TensorLayout(tensor)
    return TensorState(form, tensor.untyped_storage()._cdata, tensor.data_ptr(), version_of(tensor))


def is_in_place(before: TensorState | None, tensor: Tensor) -> bool:
    """Does a tensor lie where it lay, arranged as it was? What is given to its ``.data`` moves no version.

    Call it as :func:`sight_of`.
    """
    if before is None:
        return state_of(tensor) is None  # it may have got memory only now
    form = before.form
    try:
        is_there = tensor.data_ptr() == before.address or is_freed(tensor)  # what was given back was what it was
        return is_there and tensor.shape == form.shape and tensor.stride() == form.stride and tensor.dtype is form.kind
    except RuntimeError:  # it has become something without memory
        return False
