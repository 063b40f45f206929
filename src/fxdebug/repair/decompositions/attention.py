"""Write out torch's attentions: projections, heads, scores, scale, mask, softmax, product."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fxdebug.capture.torch_state.untracked import untracked


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    scale_first: bool = False,
) -> Tensor | None:
    """Return what torch's function of this name returns; ``None`` where it drops weights, or hides all keys of a row.

    ``scale_first``: the queries are scaled, not the scores.

    >>> q, k, v = torch.randn(3, 2, 4, 5, 8)
    >>> fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> written_out = scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> torch.allclose(fused, written_out, atol=1e-5)
    True
    """
    if dropout_p or _hides_all_keys(attn_mask):
        return None
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if scale_first:
        scores = torch.matmul(query * scale, key.transpose(-2, -1))
    else:
        scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.matmul(torch.softmax(scores, -1), value)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    scale_first: bool = False,
) -> tuple[Tensor, Tensor | None] | None:
    """Return what torch's function of this name returns; ``None`` for rarer ways: added keys, dropout, no batch.

    ``scale_first``: the queries are scaled, not the scores.

    >>> attention = torch.nn.MultiheadAttention(8, 2)
    >>> x, mask = torch.randn(5, 3, 8), torch.zeros(3, 5).index_fill(1, torch.tensor([4]), 1).bool()
    >>> given = x, x, x, 8, 2, attention.in_proj_weight, attention.in_proj_bias, None, None, False, 0.0
    >>> rest = attention.out_proj.weight, attention.out_proj.bias, False, mask
    >>> written_out, weights = multi_head_attention_forward(*given, *rest)
    >>> fused, fused_weights = F.multi_head_attention_forward(*given, *rest)
    >>> torch.allclose(fused, written_out, atol=1e-5), torch.allclose(fused_weights, weights, atol=1e-5)
    (True, True)
    """
    added = bias_k is not None or bias_v is not None or add_zero_attn or static_k is not None or static_v is not None
    if added or (dropout_p and training) or query.dim() != 3:
        return None
    length, batch, width = query.shape
    to_itself = query is key and key is value
    query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    if use_separate_proj_weight:
        assert q_proj_weight is not None and k_proj_weight is not None and v_proj_weight is not None
        weights: tuple[Tensor, ...] = q_proj_weight, k_proj_weight, v_proj_weight
    else:
        assert in_proj_weight is not None
        weights = () if to_itself else in_proj_weight.chunk(3)
    if weights:
        made = [F.linear(x, weight, bias) for x, weight, bias in zip((query, key, value), weights, biases)]
    else:
        assert in_proj_weight is not None
        made = list(F.linear(query, in_proj_weight, in_proj_bias).chunk(3, -1))
    q, k, v = (each.reshape(batch, -1, num_heads, width // num_heads).transpose(1, 2) for each in made)
    mask = None if key_padding_mask is None else _added(key_padding_mask, q)[:, None, None]
    if attn_mask is not None:
        other = _added(attn_mask, q)
        other = other.view(batch, num_heads, *other.shape[-2:]) if other.dim() == 3 else other
        mask = other if mask is None else mask + other
    if _hides_all_keys(mask):
        return None
    scale = 1 / math.sqrt(width // num_heads)
    scores = (
        torch.matmul(q * scale, k.transpose(-2, -1)) if scale_first else torch.matmul(q, k.transpose(-2, -1)) * scale
    )
    seen = torch.softmax(scores if mask is None else scores + mask, -1)
    out = torch.matmul(seen, v).transpose(1, 2).reshape(batch, length, width)
    out = F.linear(out, out_proj_weight, out_proj_bias).transpose(0, 1)
    return out, (seen.mean(1) if average_attn_weights else seen) if need_weights else None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return a mask that is added to scores; ``True`` hides in one of booleans."""
    return mask if mask.dtype != torch.bool else torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


def _hides_all_keys(mask: Tensor | None) -> bool:
    """Does a row see no key? Torch's kernels return zeros there, a softmax NaN."""
    if mask is None:
        return False
    with untracked():
        hidden = mask.logical_not() if mask.dtype == torch.bool else mask == -math.inf
        return bool(hidden.all(-1).any())
