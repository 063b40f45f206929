"""Tensors that are not plain memory: fake, wrapped, nested, quantised, sharded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.torch_state import internals
from fxdebug.data.values import UNKNOWN, Sharding


def local_part(value: Any) -> Any:
    """The local tensor of a DTensor-like object (anything with ``_local_tensor``), else the value itself."""
    return getattr(value, "_local_tensor", value) if type(value) not in PLAIN else value


def only_stands_for_data(tensor: Tensor) -> bool:
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


def unwrapped(tensor: Tensor) -> tuple[str, Tensor]:
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


def nested_shape(tensor: Tensor) -> tuple[tuple[int, ...], str]:
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


def quantisation(tensor: Tensor) -> str:
    scheme = str(tensor.qscheme()).removeprefix("torch.")
    if "channel" in scheme:
        return f"quantised {scheme}, axis {tensor.q_per_channel_axis()}"
    return f"quantised {scheme}, scale {tensor.q_scale()}, zero point {tensor.q_zero_point()}"


def sharding_of(tensor: Any) -> Sharding | None:
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


PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
