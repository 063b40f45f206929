"""manzilzaheer/DeepSets#1: predictions (B, 1) minus targets (B,) gave a (B, B) matrix; all sets got the average.

A permutation-invariant network reads a set of scalars and regresses the spread of the population it came from.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 150
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class PopulationStatistic(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(1, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))

    def forward(self, sets: torch.Tensor) -> torch.Tensor:
        pooled = self.phi(sets).mean(dim=1)
        return self.rho(pooled)


def draw_population(generator: torch.Generator, batch: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    spread = 0.2 + 2.0 * torch.rand(batch, generator=generator)
    members = torch.randn(batch, size, 1, generator=generator) * spread[:, None, None]
    return members, spread


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(0)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(17)
    model = PopulationStatistic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(i: int) -> None:
        sets, spread = draw_population(generator, batch=64, size=40)
        y_pred = model(sets)
        if not bad:
            y_pred = y_pred.squeeze(-1)
        loss = ((y_pred - spread) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
