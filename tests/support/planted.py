"""A net of repeated blocks and the same with a fault planted in it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fxdebug
from fxdebug import compare, fx_debug
from fxdebug.api.comparison import Comparison


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h) * self.factor


class Net(nn.Module):
    """Six blocks, a norm, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])
        self.final = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"hidden": x, "logits": self.head(self.final(x))}


def net() -> Net:
    torch.manual_seed(0)
    made = Net().eval()
    for block in made.blocks:
        nn.init.normal_(block.norm.weight, 1.0, 0.5)
        nn.init.normal_(block.norm.bias, 0.0, 0.5)
    return made


def x() -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


def planted(values: str = "stats") -> Comparison:
    """A wrong epsilon in one block and a wrong weight in a later one."""
    one = net()
    other = copy.deepcopy(one)
    other.blocks[1].norm.eps = 0.2
    with torch.no_grad():
        other.blocks[4].up.weight[3, 3] += 2
        return compare(*[fx_debug(model, x(), values=values) for model in (one, other)])


def odd(kind: str) -> Comparison:
    """A comparison that is not as comparisons are."""
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    ones = torch.ones(1, 4)
    if kind == "raised":
        first = nn.Linear(4, 4)
        with pytest.raises(RuntimeError):
            fx_debug(nn.Sequential(first, nn.Linear(3, 3)), ones)
        failed = fxdebug.last_failed()
        assert failed is not None
        return compare(fx_debug(nn.Sequential(first, nn.Linear(4, 3)), ones), failed)
    if kind == "without graphs":
        return compare(fx_debug(plain, ones, graph=False), fx_debug(copy.deepcopy(plain), ones * 2, graph=False))
    if kind == "without data":
        meta = fx_debug(copy.deepcopy(plain).to("meta"), ones.to("meta"))
        return compare(meta, meta)
    return compare(fx_debug(plain, ones), fx_debug(nn.Embedding(3, 2), torch.tensor([1])))
