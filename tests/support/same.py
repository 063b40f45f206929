"""Are two things the same to the last bit? Used to hold a traced run against an untraced one."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import torch


def difference(a: Any, b: Any, at: str = "", seen: frozenset[tuple[int, int]] = frozenset()) -> str | None:
    """The first place where two values differ (type, dtype, shape, stride, gradient, any bit), or ``None``."""
    if type(a) is not type(b) and (type(a).__qualname__, type(a).__module__) != (
        type(b).__qualname__,
        type(b).__module__,
    ):
        return f"{at}: type {type(a).__name__} and {type(b).__name__}"
    if (id(a), id(b)) in seen:
        return None
    seen = seen | {(id(a), id(b))}
    if isinstance(a, torch.Tensor):
        return _tensors(a, b, at)
    if isinstance(a, dict):
        if [str(key) for key in a] != [str(key) for key in b]:
            return f"{at}: keys {list(a)} and {list(b)}"
        return _first((x, y, f"{at}[{key!r}]") for (key, x), y in zip(a.items(), b.values())) if a else None
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{at}: {len(a)} and {len(b)} items"
        return next((d for i, (x, y) in enumerate(zip(a, b)) if (d := difference(x, y, f"{at}[{i}]", seen))), None)
    if isinstance(a, np.ndarray):
        return None if a.tobytes() == b.tobytes() and a.dtype == b.dtype else f"{at}: arrays differ"
    if isinstance(a, (types.FunctionType, types.MethodType, type, types.GeneratorType)):
        return None
    if hasattr(a, "__dict__") and not isinstance(a, torch.nn.Module):
        return difference(vars(a), vars(b), f"{at}.__dict__", seen)
    if isinstance(a, float) and a != a:
        return None if b != b else f"{at}: NaN and {b}"
    if isinstance(a, (int, float, complex, str, bytes, bool, set, frozenset, type(None))):
        return None if a == b else f"{at}: {a!r} and {b!r}"
    return None


def _first(triples: Any) -> str | None:
    return next((d for x, y, at in triples if (d := difference(x, y, at))), None)


def _tensors(a: torch.Tensor, b: torch.Tensor, at: str) -> str | None:
    facts = ("dtype", "device", "layout", "requires_grad", "is_nested", "is_quantized")
    for fact in facts:
        if getattr(a, fact) != getattr(b, fact):
            return f"{at}: {fact} {getattr(a, fact)} and {getattr(b, fact)}"
    if (a.grad_fn is None) != (b.grad_fn is None):
        return f"{at}: grad_fn {a.grad_fn} and {b.grad_fn}"
    if a.is_nested:
        return next(
            (d for i, (x, y) in enumerate(zip(a.unbind(), b.unbind())) if (d := _tensors(x, y, f"{at}[{i}]"))), None
        )
    if a.shape != b.shape:
        return f"{at}: shape {tuple(a.shape)} and {tuple(b.shape)}"
    if a.is_meta:
        return None
    if a.layout is torch.sparse_coo:
        a, b = a.coalesce(), b.coalesce()
        return _tensors(a.indices(), b.indices(), at) or _tensors(a.values(), b.values(), at)
    if a.layout is not torch.strided:
        return _tensors(a.values(), b.values(), at)
    if a.is_quantized:
        return _tensors(a.int_repr(), b.int_repr(), at)
    if a.stride() != b.stride():
        return f"{at}: stride {a.stride()} and {b.stride()}"
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return f"{at}: lazy conjugation or negation"
    return None if bits(a) == bits(b) else f"{at}: bits"


def bits(tensor: torch.Tensor) -> bytes:
    """Every bit of a strided tensor's elements, in order."""
    if type(tensor).__name__ == "AsyncCollectiveTensor":  # torch 2.8 makes no plain tensor of one that is on its way
        tensor = tensor.wait()  # type: ignore[attr-defined]
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous().cpu()
    return bytes(plain.reshape(-1).view(torch.uint8).numpy().tobytes()) if plain.numel() else b""
