"""A bias of scores that a port scales, too, is told by its scale; one added after the scale is no difference."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug


class Attention(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.bias, self.way = nn.Parameter(torch.randn(4, 5, 5)), way

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (4, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
        if self.way == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        elif self.way == "added":
            mixed = (q @ k.mT / math.sqrt(4) + self.bias).softmax(-1) @ v
        else:
            mixed = ((q @ k.mT + self.bias) / math.sqrt(4)).softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).flatten(2))


X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("way", ["fused", "added"])
def test_a_bias_that_is_scaled_is_told(way: str) -> None:
    first = fxdebug.compare_models(Attention(way), Attention("scaled"), X).first
    back = fxdebug.compare_models(Attention("scaled"), Attention(way), X).first
    assert first is not None and back is not None
    told = "{} stands before {} in b, where a's values need it behind"
    scale = "mul" if way == "fused" else "div"  # as the scaling of a fused attention is written out
    assert [(row.op, row.because, row.proven) for row in (first, back)] == [
        ("add", told.format("add", "div"), True),
        (scale, told.format(scale, "add"), True),
    ]
    assert first.repair == "add put behind div: with this edit b returns what a returns"


def test_a_bias_that_is_added_to_scaled_scores_is_no_difference() -> None:
    assert fxdebug.compare_models(Attention("fused"), Attention("added"), X).findings == ()
