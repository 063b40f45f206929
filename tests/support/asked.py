"""A small attention model that is asked for its calls, operations and ways."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from fxdebug import Trace, fx_debug


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.softmax = nn.Softmax(-1)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        return self.out(self.softmax(scores) @ v)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Attention(8) for _ in range(2))
        self.head = nn.Linear(8, 10)
        self.spare = nn.Dropout()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).log()  # NaN where it is negative


def run(folder: Path) -> Trace:
    torch.manual_seed(0)
    return fx_debug(Model(), torch.tensor([[1, 2, 3]]), save=folder)


def ids(found: list) -> list[str]:
    return [one.id for one in found]
