"""Describe a tensor without its numbers, also one that is fake, wrapped, nested, quantised or sharded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.module_members import parameters_of
from fxdebug.capture.torch_state.whose_code import is_part_of
from fxdebug.data.values import UNKNOWN, Sharding
from fxdebug.stats.cpu_sums import is_freed

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
"""The classes of ordinary tensors; every other class is a subclass with rules of its own."""


def local_part(value: Any) -> Any:
    """Return the local tensor of a DTensor-like object (anything with ``_local_tensor``), else the value itself.

    >>> local_part(x := torch.ones(1)) is x
    True
    """
    return getattr(value, "_local_tensor", value) if type(value) not in PLAIN else value


SHARDED = "weights are sharded: numbers of weights and their gradients are those of this rank's part"

PARTS = "results are distributed: their numbers are those of this rank's part"


def has_sharded_weights(model: nn.Module) -> bool:
    """Are weights of the model distributed over ranks (FSDP2, HSDP, tensor parallel)?

    >>> has_sharded_weights(nn.Linear(2, 2))
    False
    """
    return any(local_part(parameter) is not parameter for parameter in parameters_of(model))


def only_stands_for_data(tensor: Tensor) -> bool:
    """Is it one of torch's own wrappers without memory, such as a masked tensor?

    Its operations return further wrappers, so there are no numbers to read, and calling them has effects: a masked
    tensor warns at each.
    """
    kind = type(tensor)
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__ or not is_part_of(kind.__module__, "torch"):
        return False
    if is_part_of(kind.__module__, "torch.distributed"):  # the result of a collective: reading it waits for the data
        return False
    return bool(
        not tensor.is_nested
        and tensor.layout is torch.strided
        and tensor.numel()
        and not tensor.is_meta
        and tensor.data_ptr() == 0
    )


def unwrapped(tensor: Tensor) -> tuple[str, Tensor]:
    """Return the ordinary tensor inside functorch's wrappers (vmap, grad, …), and the wrappers in words."""
    words = []
    while internals.is_functorch_wrapped_tensor(tensor):
        inner = internals.get_unwrapped(tensor)
        if internals.is_batchedtensor(tensor):
            dim = internals.maybe_get_bdim(tensor)
            words.append(f"inside vmap over dimension {dim} of {tuple(inner.shape)}; statistics are over all of it")
        else:
            words.append("inside a functorch transform")
        tensor = inner
    return "; ".join(words), tensor


def is_uninitialised(tensor: Tensor) -> bool:
    """Is it a lazy parameter or buffer that has no shape yet?

    >>> is_uninitialised(nn.LazyLinear(2).weight)
    True
    """
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Return a tensor's shape as plain integers, also where sizes are symbolic.

    >>> shape_of(torch.ones(2, 3))
    (2, 3)
    """
    return tuple(map(size_of, tensor.shape))


def size_of(size: Any) -> int:
    """Return a size as a plain integer; ``UNKNOWN`` if it depends on values or is ragged.

    A symbolic size gives its present value. ``int(size)`` would add a guard: torch would take the size for constant.
    """
    if type(size) is int:
        return size
    hint = getattr(size.node, "hint", None)
    return UNKNOWN if hint is None else int(hint)


def nested_shape(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    """Return the shape of a nested tensor, ``UNKNOWN`` for ragged dimensions, and its parts' shapes in words."""
    try:
        parts = [tuple(part.shape) for part in tensor.unbind()]
    except (NotImplementedError, RuntimeError):  # a meta tensor: the offsets of its parts would be data
        if tensor.layout is torch.strided:
            raise
        return tuple([size if type(size) is int else UNKNOWN for size in tensor.shape]), "nested: of sizes unknown"
    if not parts:
        return (0,), "nested, empty"
    dims = tuple(sizes[0] if len(set(sizes)) == 1 else UNKNOWN for sizes in zip(*parts))
    shown = ", ".join(map(str, parts[:4])) + (", …" if len(parts) > 4 else "")
    return (len(parts), *dims), f"nested: {shown}"


def quantisation(tensor: Tensor) -> str:
    """Return the scheme of a quantised tensor in words, with scale and zero point or the axis of its channels."""
    scheme = str(tensor.qscheme()).removeprefix("torch.")
    if "channel" in scheme:
        return f"quantised {scheme}, axis {tensor.q_per_channel_axis()}"
    return f"quantised {scheme}, scale {tensor.q_scale()}, zero point {tensor.q_zero_point()}"


def sharding_of(tensor: Any) -> Sharding | None:
    """Return the global shape, mesh and placements of a DTensor; ``None`` for any other object."""
    spec = getattr(tensor, "_spec", None)
    if spec is None:
        return None
    mesh = spec.mesh
    return Sharding(
        tuple(map(int, spec.shape)),
        tuple(map(int, spec.stride)),
        tuple(mesh.shape),
        tuple(mesh.mesh_dim_names) if mesh.mesh_dim_names else None,
        tuple(map(_placement_text, spec.placements)),
    )


def _placement_text(placement: Any) -> str:
    text = str(placement)
    return f"P({placement.reduce_op})" if text == "P" else text  # torch 2.8 leaves the reduction out


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


def description_of(tensor: Tensor) -> Description:
    """Describe any tensor: plain, subclass, sparse, nested, quantised, fake, sharded or inside vmap.

    >>> described = description_of(torch.ones(2, 3).t())
    >>> described.shape, described.stride, described.body is None
    ((3, 2), (1, 3), False)
    """
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


def is_ordinary(tensor: Tensor) -> bool:
    """Is a tensor of a plain class dense and strided, with its data in the memory of a device?

    >>> is_ordinary(torch.ones(1)), is_ordinary(torch.ones(1, device="meta"))
    (True, False)
    """
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
        and not internals.is_functorch_wrapped_tensor(tensor)
        and tensor.data_ptr() != 0
    )
