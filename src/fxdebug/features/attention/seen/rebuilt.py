"""Rebuild the weights of a fused attention from its arguments, and measure how far the fused result is from theirs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fxdebug.operators.dtypes import FLOATS
from fxdebug.operators.masks import HIGHEST_MASK
from fxdebug.stats.doubles import where_doubles

ROUNDINGS = 16.0  # of the coarsest dtype, and of the largest score: how far fused and rebuilt results may be apart


@dataclass(frozen=True)
class Rebuilt:
    """The weights of one attention, on its device: ``weights`` of shape (batch, heads, queries, keys), float32.

    ``visible`` has True for each key that a query may see, in a shape that broadcasts to that of the weights; ``None``
    where only the weights tell. ``error`` is the largest difference between the weighted sum of the values and the
    attention's own result, ``tolerance`` what rounding explains; ``None`` where nothing can be compared.
    ``outputs`` are the weighted sums per head, of shape (batch, heads, queries, size), where they are known.
    ``bytes`` is the size of all that was read. ``padding`` has True for keys that a mask of padding hides, of shape
    (batch, keys). ``narrow`` tells whether the weights themselves are of a dtype in which near ones are equal.
    ``added`` names a floating mask whose elements are 0 and 1: it was meant to hide keys, and is added to the scores.
    """

    weights: Tensor
    visible: Tensor | None
    error: float | None
    tolerance: float | None
    outputs: Tensor | None
    bytes: int
    projected: tuple[float, ...] | None = None  # per head: the norm of its part of the output projection's result
    padding: Tensor | None = None
    narrow: bool = False
    added: str = ""


def rebuild_fused(arguments: Mapping[str, Any], output: Tensor) -> Rebuilt:
    """Rebuild ``scaled_dot_product_attention``, as its documentation defines it.

    ``arguments`` are by the names of its parameters. Floating masks are added, boolean ones say which keys take part;
    ``is_causal`` lets query i see the keys up to i, counted from the first of both. A query that sees no key has
    weights of zero.
    """
    query, key, value = (arguments[name].detach() for name in ("query", "key", "value"))
    mask = arguments.get("attn_mask")
    repeats = query.shape[-3] // key.shape[-3] if arguments.get("enable_gqa") and query.dim() > 2 else 1
    with _plain_arithmetic(query):
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        scale = arguments.get("scale")
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        keys, values = (tensor.to(wide).repeat_interleave(repeats, -3) for tensor in (key, value))
        scores = query.to(wide) @ keys.mT * scale
        largest = _largest(scores)
        visible: Tensor | None = None
        if arguments.get("is_causal"):
            visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~visible, -math.inf)
        if mask is not None:
            mask = mask.detach()
            seen = mask if mask.dtype == torch.bool else mask > HIGHEST_MASK
            added = mask.to(wide)
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + added
            visible = seen if visible is None else visible & seen
        weights = torch.softmax(scores, -1)
        weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
        outputs = weights @ values
        error, tolerance = _difference(outputs, output, (query, key, value, output), value, largest)
    read = sum(t.numel() * t.element_size() for t in (query, key, value, *([] if mask is None else [mask])))
    four = _four(weights)
    seen_by = None if visible is None else _four(visible)
    return Rebuilt(four.float(), seen_by, error, tolerance, _four(outputs), read, added=_added(arguments, "attn_mask"))


def rebuild_multi_head(arguments: Mapping[str, Any], result: Tensor) -> Rebuilt:
    """Rebuild ``multi_head_attention_forward``: run it again, without dropout, with the weights of every head.

    ``result`` is the tensor it returned first. The weighted sums per head are known where all keys come from ``key``.
    """
    plain = {name: x.detach() if isinstance(x, Tensor) else x for name, x in arguments.items()}
    if plain.get("is_causal") and plain.get("key_padding_mask") is None and not plain.get("need_weights", True):
        queries, keys = plain["query"].shape[0], plain["key"].shape[0]  # the hint replaces the mask that was given
        seen = torch.ones(queries, keys, dtype=torch.bool, device=result.device).tril()
        plain |= {"attn_mask": ~seen, "is_causal": False}
    plain |= {"need_weights": True, "average_attn_weights": False, "training": False}
    value, heads = plain["value"], int(plain["num_heads"])
    with _plain_arithmetic(result):
        again, weights = F.multi_head_attention_forward(**plain)
        dtypes = (result, *(x for x in plain.values() if isinstance(x, Tensor) and x.is_floating_point()))
        error, tolerance = _difference(again, result, dtypes, again, 1.0)
        assert weights is not None  # it was asked for
        four = _four(weights.nan_to_num(0.0))
        outputs = _head_values(plain, value, heads, four)
        projected = None
        if outputs is not None:
            projected = projections(outputs, plain["out_proj_weight"].float(), columns_first=False)
    tensors = {id(x): x for name, x in plain.items() if isinstance(x, Tensor) and "weight" not in name}
    read = sum(t.numel() * t.element_size() for t in tensors.values())
    visible, padding = _masks(plain, four)
    narrow, added = _is_narrow(weights), _added(arguments, "attn_mask", "key_padding_mask")
    return Rebuilt(four.float(), visible, error, tolerance, outputs, read, projected, padding, narrow, added)


def _added(arguments: Mapping[str, Any], *names: str) -> str:
    """Return the name of the first floating mask that has zeros and ones, and nothing else; empty if none has."""
    for name in names:
        mask = arguments.get(name)
        if isinstance(mask, Tensor) and mask.is_floating_point():
            zeros, ones = mask.detach() == 0, mask.detach() == 1
            if bool((zeros | ones).all()) and bool(zeros.any()) and bool(ones.any()):
                return name
    return ""


def _masks(plain: Mapping[str, Any], weights: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the keys that each query of a multi-head attention may see, and those that are padding, by its masks.

    Keys that the attention adds itself (``add_zero_attn``, ``bias_k``) are the last, and every query sees them.
    """
    batch, heads, queries, keys = weights.shape
    visible, padding = None, plain.get("key_padding_mask")
    mask = plain.get("attn_mask")
    if mask is not None:
        seen = ~mask if mask.dtype == torch.bool else mask > HIGHEST_MASK
        visible = seen[None, None] if seen.dim() == 2 else seen.reshape(-1, heads, queries, seen.shape[-1])
    if padding is not None:
        padding = padding if padding.dtype == torch.bool else padding <= HIGHEST_MASK
        padding = padding.reshape(batch, -1)
        shown = ~padding[:, None, None]
        visible = shown if visible is None else visible & shown
    if visible is None or visible.shape[-1] > keys:
        return None, padding
    return F.pad(visible, (0, keys - visible.shape[-1]), value=True), padding


def _is_narrow(weights: Tensor) -> bool:
    return str(weights.dtype)[6:] in FLOATS and FLOATS[str(weights.dtype)[6:]].bits < 32


def _head_values(plain: Mapping[str, Any], value: Tensor, heads: int, weights: Tensor) -> Tensor | None:
    """Return the weighted sums of each head of a multi-head attention; ``None`` where keys are added in it."""
    if plain.get("static_v") is not None or plain.get("bias_v") is not None or plain.get("add_zero_attn"):
        return None
    weight, bias = plain.get("v_proj_weight"), plain.get("in_proj_bias")
    if not plain.get("use_separate_proj_weight"):
        weight = plain["in_proj_weight"].chunk(3)[2]
    assert weight is not None
    projected = F.linear(value, weight, None if bias is None else bias.chunk(3)[2])
    if projected.dim() == 2:
        projected = projected.unsqueeze(1)
    keys, batch, size = projected.shape
    values = projected.reshape(keys, batch, heads, size // heads).permute(1, 2, 0, 3)
    return weights.float() @ values.float() if values.shape[2] == weights.shape[-1] else None


def of_weights(weights: Tensor, outputs: Tensor | None) -> Rebuilt:
    """Return the weights of an attention that is written out: the softmax's result itself, with no error."""
    four = _four(weights.detach())
    four = four if four.dtype in (torch.float32, torch.float64) else four.float()
    sums = None if outputs is None or outputs.dim() != 4 else outputs.detach()
    read = weights.numel() * weights.element_size()
    return Rebuilt(four, None, 0.0, 0.0, sums, read, narrow=_is_narrow(weights))


def projections(outputs: Tensor, weight: Tensor, *, columns_first: bool) -> tuple[float, ...] | None:
    """Return for each head the norm of its part of an output projection's result.

    ``outputs``: (batch, heads, queries, size). ``weight``: (out, heads · size), or the transpose of it with
    ``columns_first``. ``None`` where the sizes are others.
    """
    matrix = weight.detach() if columns_first else weight.detach().T
    heads, size = outputs.shape[1], outputs.shape[3]
    if matrix.dim() != 2 or matrix.shape[0] != heads * size:
        return None
    with _plain_arithmetic(outputs):
        parts = torch.einsum("bhqd,hde->hbqe", outputs.float(), matrix.float().reshape(heads, size, -1))
        return tuple(parts.flatten(1).norm(dim=1).tolist())


def difference(one: Any, other: Any) -> tuple[float, float] | None:
    """Return the largest difference of two results, and what rounding explains; ``None`` where they do not compare."""
    first, second = (next(iter(x), None) if isinstance(x, (tuple, list)) else x for x in (one, other))
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or first.shape != second.shape:
        return None
    used = (first != 0).any(-1, keepdim=True) & (second != 0).any(-1, keepdim=True)  # fused kernels put 0 for padding
    error, tolerance = _difference(first * used, second * used, (first, second), first, 1.0)
    return None if error is None or tolerance is None else (error, tolerance)


def _difference(
    rebuilt: Tensor, output: Tensor, tensors: tuple[Tensor, ...], scale_of: Tensor, largest_score: float
) -> tuple[float | None, float | None]:
    if not output.numel() or rebuilt.shape != output.shape:
        return None, None
    eps = max([FLOATS[name].eps for t in tensors if (name := str(t.dtype)[6:]) in FLOATS], default=2.0**-23)
    finite = where_doubles(output.isfinite() & rebuilt.isfinite())
    apart = (where_doubles(rebuilt).double() - where_doubles(output.detach()).double()).abs()
    if not finite.any():
        return None, None
    return apart[finite].max().item(), eps * ROUNDINGS * (1.0 + largest_score) * _largest(scale_of.detach())


def _largest(tensor: Tensor) -> float:
    """Return the largest magnitude of the elements that are finite, 0 where none is."""
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max().item()) if finite.numel() else 0.0


def _four(tensor: Tensor) -> Tensor:
    """Return a tensor with four dimensions: (batch, heads, queries, keys)."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor.flatten(0, tensor.dim() - 4) if tensor.dim() > 4 else tensor


@contextmanager
def _plain_arithmetic(tensor: Tensor) -> Iterator[None]:
    """Compute as written: without gradients, and without the casts of autocast."""
    with torch.no_grad(), torch.autocast(tensor.device.type, enabled=False):
        yield
