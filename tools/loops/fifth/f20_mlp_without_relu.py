"""YujiaBao/ls#1: the MLP of the paper has ReLU units, the code stacked Linear layers with only dropout between them.

A splitter network that has to tell inside from outside gets a straight line instead.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 200
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MLP(nn.Module):
    def __init__(self, in_dim: int, hidden_dims: list[int], out_dim: int, dropout: float, relu: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for hidden in hidden_dims:
            layers.append(nn.Linear(in_dim, hidden))
            if relu:
                layers.append(nn.ReLU())
            layers.append(nn.Dropout(dropout))
            in_dim = hidden
        layers.append(nn.Linear(in_dim, out_dim))
        self.seq = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.seq(x)


def tabular(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two informative columns out of six; the class says whether their signs agree."""
    x = torch.randn(batch, 6, generator=generator)
    y = ((x[:, 0] > 0) == (x[:, 1] > 0)).long()
    return x, y


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(19)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(20)
    model = MLP(6, [64, 64], 2, dropout=0.1, relu=not bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()

    def step(i: int) -> None:
        x, y = tabular(generator, 128)
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
