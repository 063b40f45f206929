"""Reading a tensor leaves its storage resizable: after ``Tensor.numpy()`` sharded modules could not free it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import fxdebug


class Attends(nn.Module):
    def __init__(self, seen: list[Tensor]) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(8, 8), seen

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q = self.linear(x).view(1, 1, 4, 8)
        result = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        self.seen += [x, mask, q, result, torch.relu(result)]
        return self.seen[-1]


def test_activations_attention_and_heatmaps_pin_no_storage(tmp_path: Path) -> None:
    seen: list[Tensor] = []
    inputs = torch.randn(4, 8), torch.ones(4, 4, dtype=torch.bool).tril()
    with torch.no_grad():
        fxdebug.activations(Attends(seen), inputs)
        assert fxdebug.attention(Attends(seen), inputs).maps
    seen += [*inputs, torch.eye(4, dtype=torch.float64)]
    fxdebug.heatmap(seen[-1], tmp_path / "map.png")
    assert [tensor.untyped_storage().resizable() for tensor in seen] == [True] * len(seen)
