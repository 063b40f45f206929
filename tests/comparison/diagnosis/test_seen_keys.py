"""A step of decoding that sees one key too few, or one too many, is told by the numbers of keys."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fxdebug import compare, fx_debug
from fxdebug.api.comparison import Comparison

WINDOW, WIDTH = 4, 16


class Attention(nn.Module):
    """Attention in a window, whose steps of decoding keep so many keys and values."""

    def __init__(self, kept: int, written_out: bool) -> None:
        super().__init__()
        self.qkv, self.kept, self.written_out = nn.Linear(WIDTH, 3 * WIDTH), kept, written_out

    def forward(self, x: Tensor, cache: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None:
            k, v = (torch.cat(pair, 1) for pair in zip(cache, (k, v)))
        kept = k[:, -self.kept :], v[:, -self.kept :]
        mask = torch.ones(x.shape[1], x.shape[1]).tril().triu(1 - WINDOW).bool()
        if cache is not None:
            k, v = kept
            mask = torch.ones(1, k.shape[1]).bool()
        if not self.written_out:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), kept
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(WIDTH)
        return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v, kept


class Model(nn.Module):
    def __init__(self, kept: int, written_out: bool) -> None:
        super().__init__()
        self.embed, self.attention = nn.Embedding(20, WIDTH), Attention(kept, written_out)
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, ids: Tensor, cache: Any = None) -> Any:
        x, cache = self.attention(self.embed(ids), cache)
        return self.head(x), cache


def compared(kept: int, written_out: bool) -> Comparison:
    """Return a run over seven positions beside a step of decoding with six of them in the cache."""
    torch.manual_seed(0)
    model, ids = Model(kept, written_out).eval(), torch.arange(7)[None]
    with torch.no_grad():
        _, cache = model(ids[:, :6])
        whole = fx_debug(model, (ids,), values="tensors")
        return compare(whole, fx_debug(model, (ids[:, 6:], cache), values="tensors"))


@pytest.mark.parametrize("written_out", [False, True], ids=["fused", "written out"])
@pytest.mark.parametrize("kept", [WINDOW - 1, WINDOW + 1])
def test_a_cache_of_another_length_than_the_window_is_told_by_the_keys_that_are_seen(kept, written_out):
    found = compared(kept, written_out)
    assert found.first is not None
    assert (found.first.path, found.first.because) == (
        "attention",
        f"its last position attends to {WINDOW} keys in a, to {kept} in b",
    )


@pytest.mark.parametrize("written_out", [False, True], ids=["fused", "written out"])
def test_a_cache_as_long_as_the_window_is_equal(written_out):
    assert compared(WINDOW, written_out).equal
