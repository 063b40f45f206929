"""Describe a tensor without its numbers: shape, dtype, device, layout, and what makes it special."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.tensors.special_tensors import (
    PLAIN,
    local_part,
    nested_shape,
    only_stands_for_data,
    quantisation,
    shape_of,
    sharding_of,
    size_of,
    unwrapped,
)
from fxdebug.capture.torch_state import internals
from fxdebug.data.values import Sharding
from fxdebug.stats.cpu_sums import is_freed


@dataclass(slots=True)
class Description:
    """Facts about one tensor, and ``body``: the ordinary tensor that holds its data, if any."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    layout: str
    stride: tuple[int, ...] | None
    offset: int
    type: str
    requires_grad: bool
    body: Tensor | None
    sharding: Sharding | None = None
    detail: str | None = None


_class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_qualified_name: Callable[[type], str] = type.__dict__["__qualname__"].__get__


def type_name(kind: type) -> str:
    """Return a class's name without its module, as people write it; a property of its metaclass is not asked."""
    return _class_name(kind)


def class_names(kind: type) -> tuple[str, ...]:
    """Return the full names of a class and its bases, Python module first; nothing of a metaclass is asked."""
    return tuple([f"{_module_of(base)}.{_qualified_name(base)}" for base in kind.__mro__ if base is not object])


def _module_of(kind: type) -> str:
    found = kind.__dict__.get("__module__", "")
    return found if isinstance(found, str) else ""


def is_ordinary(tensor: Tensor) -> bool:
    """Is a tensor of a plain class dense and strided, with its data in the memory of a device?"""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
        and not _is_wrapped(tensor)
        and tensor.data_ptr() != 0
    )


_is_wrapped = internals.is_functorch_wrapped_tensor
_names: dict[Any, str] = {}  # of dtypes and devices; torch is slow to write one


def name_of(kind: torch.dtype | torch.device) -> str:
    """Return the name of a dtype or a device without ``torch.`` in front."""
    name = _names.get(kind)
    if name is None:
        name = _names[kind] = str(kind).removeprefix("torch.")
    return name


def description_of(tensor: Tensor) -> Description:
    """Describe any tensor: plain, subclass, sparse, nested, quantised, fake, sharded or inside vmap."""
    sharding = detail = None
    requires_grad = tensor.requires_grad  # of a distributed tensor: its local part is no leaf of autograd
    body: Tensor | None = tensor
    kind = type(tensor)
    if kind not in PLAIN:
        local = local_part(tensor)
        if local is not tensor:
            sharding = sharding_of(tensor)
            tensor = body = local
        elif internals.is_fake(tensor) or only_stands_for_data(tensor):
            body = None
    if internals.is_functorch_wrapped_tensor(tensor):
        detail, body = unwrapped(tensor)
    layout = tensor.layout
    stride: tuple[int, ...] | None = None
    offset = 0
    if tensor.is_nested:
        shape, detail = nested_shape(tensor)
    else:
        shape = shape_of(tensor)
        if layout is torch.strided:
            stride, offset = tuple(map(size_of, tensor.stride())), size_of(tensor.storage_offset())
    if tensor.is_quantized:
        detail = quantisation(tensor)
    if body is not None and stride is not None and is_freed(body):
        detail, body = "its memory was given back", None
    return Description(
        shape,
        str(tensor.dtype)[6:],
        str(tensor.device),
        str(layout)[6:],
        stride,
        offset,
        kind.__name__,
        requires_grad,
        body,
        sharding,
        detail,
    )
