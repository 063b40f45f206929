"""What a tensor is, without its numbers: shape, dtype, device, layout, and what makes it special."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.torch_state import internals
from fxdebug.data.values import UNKNOWN, Sharding
from fxdebug.stats import is_freed

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


@dataclass(slots=True)
class Looks:
    """The facts about one tensor, and ``body``: the ordinary tensor that holds its data, if any."""

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


def type_name(kind: type) -> str:
    """A class's own name; the module is left out, as people write it."""
    return kind.__name__


def is_ordinary(tensor: Tensor) -> bool:
    """Is there no more to a plain tensor than shape, strides and data in the memory of a device?"""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not tensor.is_nested
        and not _is_wrapped(tensor)
        and tensor.data_ptr() != 0
    )


_is_wrapped = internals.is_functorch_wrapped_tensor
NAMES: dict[Any, str] = {}  # those that were asked for


def name_of(what: torch.dtype | torch.device) -> str:
    """A dtype's or a device's name without ``torch.`` in front; torch takes a while to write them."""
    name = NAMES.get(what)
    if name is None:
        name = NAMES[what] = str(what).removeprefix("torch.")
    return name


def local_part(value: Any) -> Any:
    """The local tensor of a DTensor-like object (anything with ``_local_tensor``), else the value itself."""
    return getattr(value, "_local_tensor", value) if type(value) not in PLAIN else value


def looks(tensor: Tensor) -> Looks:
    """Describe any tensor: plain, subclass, sparse, nested, quantised, fake, sharded or inside vmap."""
    sharding = detail = None
    body: Tensor | None = tensor
    kind = type(tensor)
    if kind not in PLAIN:
        local = local_part(tensor)
        if local is not tensor:
            sharding = _sharding(tensor)
            tensor = body = local
        elif internals.is_fake(tensor) or _only_stands_for_data(tensor):
            body = None
    if internals.is_functorch_wrapped_tensor(tensor):
        detail, body = _unwrapped(tensor)
    layout = tensor.layout
    stride: tuple[int, ...] | None = None
    offset = 0
    if tensor.is_nested:
        shape, detail = _nested_shape(tensor)
    else:
        shape = shape_of(tensor)
        if layout is torch.strided:
            stride, offset = tuple(map(size_of, tensor.stride())), size_of(tensor.storage_offset())
    if tensor.is_quantized:
        detail = _quantisation(tensor)
    if body is not None and stride is not None and is_freed(body):
        detail, body = "its memory was given back", None
    return Looks(
        shape, str(tensor.dtype)[6:], str(tensor.device), str(layout)[6:], stride, offset, kind.__name__,
        tensor.requires_grad, body, sharding, detail,
    )  # fmt: skip


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's shape as data, whatever its sizes are."""
    return tuple(map(size_of, tensor.shape))


def size_of(size: Any) -> int:
    """A size as data: a symbolic one is what it stands for now, ``UNKNOWN`` if it depends on values or is ragged.

    ``int(size)`` would be a promise that it always is that.
    """
    if type(size) is int:
        return size
    hint = getattr(size.node, "hint", None)
    return UNKNOWN if hint is None else int(hint)


def _only_stands_for_data(tensor: Tensor) -> bool:
    """Is it one of torch's wrappers, a masked tensor, say? It has no memory, and all that one makes of it is another.

    There are no numbers to be had, and asking has effects: a masked tensor warns of each operation.
    """
    kind = type(tensor)
    if kind.__torch_dispatch__ is Tensor.__torch_dispatch__ or not kind.__module__.startswith("torch."):
        return False
    if kind.__module__.startswith("torch.distributed."):  # the result of a collective: it is waited for
        return False
    return bool(
        not tensor.is_nested
        and tensor.layout is torch.strided
        and tensor.numel()
        and not tensor.is_meta
        and tensor.data_ptr() == 0
    )


def _unwrapped(tensor: Tensor) -> tuple[str, Tensor]:
    """What a functorch transform (vmap, grad, …) wraps, down to the ordinary tensor."""
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


def _nested_shape(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    """A ragged dimension has no size: it is given as ``UNKNOWN``, and the sizes there are in words."""
    try:
        parts = [tuple(part.shape) for part in tensor.unbind()]
    except (NotImplementedError, RuntimeError):  # where its parts lie is data, and there is none: a meta tensor
        if tensor.layout is torch.strided:
            raise
        return tuple([size if type(size) is int else UNKNOWN for size in tensor.shape]), "nested: of sizes unknown"
    if not parts:
        return (0,), "nested, empty"
    dims = tuple(sizes[0] if len(set(sizes)) == 1 else UNKNOWN for sizes in zip(*parts))
    shown = ", ".join(map(str, parts[:4])) + (", …" if len(parts) > 4 else "")
    return (len(parts), *dims), f"nested: {shown}"


def _quantisation(tensor: Tensor) -> str:
    scheme = str(tensor.qscheme()).removeprefix("torch.")
    if "channel" in scheme:
        return f"quantised {scheme}, axis {tensor.q_per_channel_axis()}"
    return f"quantised {scheme}, scale {tensor.q_scale()}, zero point {tensor.q_zero_point()}"


def _sharding(tensor: Any) -> Sharding | None:
    spec = getattr(tensor, "_spec", None)
    if spec is None:
        return None
    mesh = spec.mesh
    return Sharding(
        tuple(map(int, spec.shape)),
        tuple(map(int, spec.stride)),
        tuple(mesh.shape),
        tuple(mesh.mesh_dim_names) if mesh.mesh_dim_names else None,
        tuple(map(str, spec.placements)),
    )
