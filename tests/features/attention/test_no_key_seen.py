"""Queries that a mask lets see no key; those of padding are no fault."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

CAUSAL = torch.ones(6, 6).tril().bool()
PADDED = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])


class Fused(nn.Module):
    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.qkv, self.mask = nn.Linear(16, 48), mask

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        mask = self.mask if attention_mask is None else self.mask & attention_mask[:, None, None].bool()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def found(model: nn.Module, inputs: object, **kwargs: object) -> list[str]:
    report = fxdebug.check(model, inputs, kwargs=kwargs or None, analyses=["attention"], config=False)
    return [finding.what for finding in report if finding.rule == "no key seen"]


def what(count: str) -> list[str]:
    return [f"the mask lets {count} see no key: they get zeros, or the mean of what is hidden"]


x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mask", [CAUSAL.tril(-1), ~CAUSAL], ids=["strictly causal", "inverted"])
def test_a_mask_with_an_empty_row_is_found(mask: Tensor) -> None:
    assert found(Fused(mask), x) == what("2 queries")


def test_a_token_that_neither_sees_nor_is_seen_is_taken_for_padding() -> None:
    assert found(Fused(CAUSAL & (torch.arange(6) != 0)), x) == []


def test_queries_of_padding_may_see_nothing() -> None:
    assert found(Fused(CAUSAL), x) == []
    assert found(Fused(CAUSAL), {"x": x, "attention_mask": PADDED}) == []


def test_a_row_of_the_batch_that_is_all_hidden_is_found() -> None:
    hidden = torch.tensor([[0] * 6, [1] * 6])
    assert found(Fused(CAUSAL), {"x": x, "attention_mask": hidden}) == what("6 queries")
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])  # where tokens are, and torch reads it as padding
    assert found(layer, (x, x, x), key_padding_mask=real, need_weights=False) == what("6 queries")
    assert found(layer, (x, x, x), key_padding_mask=~real, need_weights=False) == []
