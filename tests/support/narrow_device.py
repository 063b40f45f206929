"""Tensors of a device without float64, as Apple's GPUs are: a cast to it raises there, also on the way to the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

NARROW = torch.device("mps")
_DOUBLES = (torch.float64, torch.complex128)


class OnNarrowDevice(Tensor):
    """A tensor that says it is on the device; its elements are on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls: Any, inner: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=NARROW
        )
        made.inner = inner
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"on a narrow device: {self.inner}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        device = given.get("device")
        if given.get("dtype") in _DOUBLES:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype: the framework does not support float64")
        if device is not None and torch.device(device) == NARROW:
            del given["device"]
        args, given = tree_map(lambda x: x.inner if isinstance(x, cls) else x, (args, given))
        result = func(*args, **given)
        leaves = device is not None and torch.device(device).type == "cpu"
        return result if leaves else tree_map(lambda x: cls(x.contiguous()) if isinstance(x, Tensor) else x, result)
