"""Infinities that are meant: every way of masking scores that models use, and filters of logits. None is a fault.

``MASKS`` has functions of scores (batch × queries × keys) and of a boolean that says what may be seen; each gives
what would be multiplied with the values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INF = float("inf")


def masked_fill(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, -INF).softmax(-1)


def masked_fill_in_place(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.clone().masked_fill_(~seen, float("-inf")).softmax(-1)


def lowest_filled(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)


def triangle_added(scores: Tensor, seen: Tensor) -> Tensor:
    length = scores.shape[-1]
    return (scores + torch.full((length, length), -INF, dtype=scores.dtype).triu(1)).softmax(-1)


def lowest_added(scores: Tensor, seen: Tensor) -> Tensor:
    return (scores + (1.0 - seen.to(scores.dtype)) * torch.finfo(scores.dtype).min).softmax(-1)


def lowest_twice(scores: Tensor, seen: Tensor) -> Tensor:
    low = (~seen).to(scores.dtype) * torch.finfo(scores.dtype).min
    return (scores + (low + low)).softmax(-1)


def ten_thousand(scores: Tensor, seen: Tensor) -> Tensor:
    return F.softmax(scores + (1.0 - seen.to(scores.dtype)) * -10000.0, dim=-1)


def a_billion(scores: Tensor, seen: Tensor) -> Tensor:
    return F.softmax(scores + (1.0 - seen.to(scores.dtype)) * -1e9, dim=-1)  # -Inf in float16


def wide_mask_cast(scores: Tensor, seen: Tensor) -> Tensor:
    low = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    return (scores + low.to(scores.dtype)).softmax(-1)  # rounds to -Inf in bfloat16


def where_tensor(scores: Tensor, seen: Tensor) -> Tensor:
    return torch.where(seen, scores, torch.tensor(-INF, dtype=scores.dtype)).softmax(-1)


def where_number(scores: Tensor, seen: Tensor) -> Tensor:
    return torch.where(seen, scores, -INF).softmax(-1)


def item_set(scores: Tensor, seen: Tensor) -> Tensor:
    scores = scores.clone()
    scores[~seen.expand_as(scores)] = -INF
    return torch.softmax(scores, dim=-1)


def filled_in_place(scores: Tensor, seen: Tensor) -> Tensor:
    low = torch.empty_like(scores).fill_(-INF)
    low[seen.expand_as(scores)] = 0
    return (low + scores).softmax(-1)


def new_full(scores: Tensor, seen: Tensor) -> Tensor:
    return (scores + scores.new_full(scores.shape[-2:], -INF).triu(diagonal=1)).softmax(-1)


def logarithm_of_mask(scores: Tensor, seen: Tensor) -> Tensor:
    return (scores + seen.to(scores.dtype).log()).softmax(-1)


def negative_infinity_everywhere_first(scores: Tensor, seen: Tensor) -> Tensor:
    kept = torch.full_like(scores, -INF)
    return torch.where(seen, scores, kept).log_softmax(-1).exp()


def log_sum_exp(scores: Tensor, seen: Tensor) -> Tensor:
    masked = scores.masked_fill(~seen, -INF)
    return (masked - masked.logsumexp(-1, keepdim=True)).exp()


def by_hand(scores: Tensor, seen: Tensor) -> Tensor:
    masked = scores.masked_fill(~seen, -INF)
    weights = torch.exp(masked - masked.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def sigmoid(scores: Tensor, seen: Tensor) -> Tensor:
    return scores.masked_fill(~seen, -INF).sigmoid()


def largest(scores: Tensor, seen: Tensor) -> Tensor:
    masked = scores.masked_fill(~seen, -INF)
    return (masked == masked.max(-1, keepdim=True).values).to(scores.dtype)


def clamped(scores: Tensor, seen: Tensor) -> Tensor:
    low = scores.masked_fill(~seen, -INF)
    return low.clamp(min=torch.finfo(scores.dtype).min).softmax(-1)


def empty_rows_put_right(scores: Tensor, seen: Tensor) -> Tensor:
    seen = seen & (torch.arange(seen.shape[-1]) > 0).unsqueeze(-1)
    return scores.masked_fill(~seen, -INF).softmax(-1).nan_to_num(0.0)


def empty_rows_chosen(scores: Tensor, seen: Tensor) -> Tensor:
    seen = seen & (torch.arange(seen.shape[-1]) > 0).unsqueeze(-1)
    weights = scores.masked_fill(~seen, -INF).softmax(-1)
    return torch.where(seen.any(-1, keepdim=True), weights, 0.0)


def best_three(scores: Tensor, seen: Tensor) -> Tensor:
    least = scores.topk(3, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < least, -INF).softmax(-1)


def nucleus(scores: Tensor, seen: Tensor) -> Tensor:
    ordered, order = scores.sort(dim=-1)
    remove = (ordered.softmax(-1).cumsum(-1) <= 0.2).scatter(-1, order, ordered.softmax(-1).cumsum(-1) <= 0.2)
    return scores.masked_fill(remove, -INF).log_softmax(-1).exp()


def padded_maximum(scores: Tensor, seen: Tensor) -> Tensor:
    padded = F.pad(scores, (1, 1), value=-INF)
    return torch.maximum(padded[..., :-2], padded[..., 2:]).softmax(-1)


def safe_division(scores: Tensor, seen: Tensor) -> Tensor:
    kept = scores.relu() * seen
    total = kept.sum(-1, keepdim=True) * 0
    return torch.where(total == 0, torch.zeros_like(kept), kept / total)


def fused_with_numbers(scores: Tensor, seen: Tensor) -> Tensor:
    low = torch.zeros_like(scores).masked_fill(~seen, -INF)
    return F.scaled_dot_product_attention(scores, scores, scores, attn_mask=low)


def fused_with_booleans(scores: Tensor, seen: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(scores, scores, scores, attn_mask=seen.expand_as(scores))


MASKS = [
    masked_fill, masked_fill_in_place, lowest_filled, triangle_added, lowest_added, lowest_twice, ten_thousand,
    a_billion, wide_mask_cast, where_tensor, where_number, item_set, filled_in_place, new_full, logarithm_of_mask,
    negative_infinity_everywhere_first, log_sum_exp, by_hand, sigmoid, largest, clamped, empty_rows_put_right,
    empty_rows_chosen, best_three, nucleus, padded_maximum, safe_division, fused_with_numbers, fused_with_booleans,
]  # fmt: skip


class Masked(nn.Module):
    """Attention with a causal and a padding mask, in one of these ways."""

    def __init__(self, mask: object) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.mask = mask

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        scores = self.project(x) @ x.transpose(-1, -2)
        return self.mask(scores, seen) @ x  # type: ignore[operator, no-any-return]


def masked_model(mask: object, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    padding = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]], dtype=torch.bool)
    return Masked(mask).eval().to(dtype), (torch.randn(2, 6, 8).to(dtype), seen & padding[:, None, :])
