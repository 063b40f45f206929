"""A tensor as it is at one moment: its form, which many share, and where and in which version it lies.

Forms are remembered by what :mod:`~fxdebug.capture.glance` sees, for the whole process: torch is asked once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fxdebug.capture.describe import PLAIN, is_ordinary, name_of
from fxdebug.capture.glance import GRADIENT, VIEW, Glance, glance
from fxdebug.capture.memory import Dims, dims_of
from fxdebug.capture.seen import version_of
from fxdebug.capture.torch_state import internals
from fxdebug.stats import is_elsewhere, is_freed

MOST_FORMS = 20_000  # remembered at a time: lengths and strides come and go


class Form:
    """What tensors have in common that differ in their place and their numbers only."""

    __slots__ = (
        "count", "device", "dims", "dtype", "elsewhere", "end", "kind", "offset", "shape", "start", "stride"
    )  # fmt: skip

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
        size = tensor.element_size()
        self.start = self.offset * size  # of its first element in the storage, in bytes
        last = sum([(many - 1) * step for many, step in zip(self.shape, self.stride)]) if self.count else -1
        self.end = self.start + (last + 1) * size

    def is_like(self, other: Form) -> bool:
        """Are both the form of a tensor in the same place with the same elements? Forms may be made anew."""
        if self is other:
            return True
        mine = self.shape, self.stride, self.kind, self.offset
        return mine == (other.shape, other.stride, other.kind, other.offset)


class Sight(NamedTuple):
    """One look at a tensor; the version is ``None`` for inference tensors, which have none."""

    form: Form
    storage: int  # the address of torch's object for its memory
    address: int  # of its first element
    version: int | None
    gradient: bool  # does it require gradients?
    view: bool  # is it a view of another tensor, whose versions it shares?


_forms: dict[bytes, Form] = {}
_new = tuple.__new__


def at_a_glance(tensor: Tensor) -> Sight | None:
    """A look that asks torch nothing: no mode hears of it. ``None`` where torch must be asked."""
    look = _look or looking()
    found = look(tensor) if type(tensor) in PLAIN else None
    if found is None:
        return None
    key, storage, data, size, state = found
    form = _forms.get(key)
    if form is None or not data or size < form.end:
        return None
    return _new(Sight, (form, storage, data + form.start, state >> 2, state & GRADIENT != 0, state & VIEW != 0))


def requires_gradient(tensor: Tensor) -> bool:
    """Does it require gradients? A subclass, or a mode, is not to hear of the question."""
    sight = at_a_glance(tensor)
    if sight is not None:
        return sight.gradient
    with internals.DisableTorchFunction():
        return tensor.requires_grad


def form_known(key: bytes) -> Form | None:
    """The form that is remembered by what a glance saw."""
    return _forms.get(key)


def sight_of(tensor: Tensor) -> Sight | None:
    """A look at a dense tensor that is what it seems, as nearly all are; ``None`` for any other.

    Call it inside :class:`~fxdebug.capture.aside.aside`, or where nothing listens.
    """
    sight = at_a_glance(tensor)
    if sight is not None:
        return sight
    if type(tensor) not in PLAIN or not is_ordinary(tensor):
        return None
    if is_freed(tensor):
        return None
    found = looking()(tensor)
    form = None if found is None else _forms.get(found[0])
    if form is None:
        form = Form(tensor)
        if found is not None:
            if len(_forms) >= MOST_FORMS:
                _forms.clear()
            _forms[found[0]] = form
    storage = tensor.untyped_storage()._cdata
    return Sight(form, storage, tensor.data_ptr(), version_of(tensor), tensor.requires_grad, tensor._is_view())


def is_in_place(before: Sight | None, tensor: Tensor, sight: Sight | None) -> bool:
    """Does a tensor lie where it lay, arranged as it was? What is given to its ``.data`` moves no version.

    ``sight``: a look at it now, at a glance. Call it as :func:`sight_of`.
    """
    if before is None:
        return sight is None and sight_of(tensor) is None  # it may have got memory only now
    if sight is not None:
        return sight.address == before.address and sight.form.is_like(before.form)
    try:
        is_there = tensor.data_ptr() == before.address or is_freed(tensor)  # what was given back was what it was
        return is_there and tensor.shape == before.form.shape
    except RuntimeError:  # it has become something without memory
        return False


Look = Callable[[Tensor], Glance | None]
_look: Look | None = None


def looking() -> Look:
    """What looks; made when it is needed first, in some 10 ms."""
    global _look
    if _look is None:
        _look = glance() or _blind
    return _look


def _blind(tensor: Tensor) -> None:
    return None
