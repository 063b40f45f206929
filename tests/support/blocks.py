"""A model of three blocks, a run of it, and the same with a weight that was changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug

X = torch.linspace(-2, 2, 48).view(4, 12)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.up = nn.Linear(12, 24)
        self.down = nn.Linear(24, 12)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def model(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return Model()


def run(module: nn.Module, x: Any = X, **options: Any) -> fxdebug.Trace:
    with torch.no_grad():
        return fx_debug(module, x, **options)


def changed(change: Any, values: str = "stats", x: Any = X) -> Any:
    """A model against a copy in which something was changed."""
    one, other = model(), model()
    with torch.no_grad():
        change(other)
    return fxdebug.compare(run(one, values=values), run(other, x, values=values))
