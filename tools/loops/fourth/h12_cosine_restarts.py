"""wandb/senpai#967: cosine schedule with warm restarts; the loss leaps up whenever the rate is set back to its peak.

A surrogate for a pressure field around two foils, with SGDR cycles that double in length.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 280
HISTORY: list[float] = []
BATCH, POINTS = 8, 32


class SurfaceModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.geometry = nn.Linear(3, 32)
        self.field = nn.Sequential(nn.Linear(34, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, foil: Tensor, points: Tensor) -> Tensor:
        g = self.geometry(foil)[:, None, :].expand(-1, POINTS, -1)
        return self.field(torch.cat([g, points], dim=-1)).squeeze(-1)


def cases() -> tuple[Tensor, Tensor, Tensor]:
    foil, points = torch.rand(BATCH, 3) * 2 - 1, torch.rand(BATCH, POINTS, 2) * 2 - 1
    centre, strength = foil[:, None, :2], 1.5 + foil[:, None, 2]
    pressure = strength * torch.exp(-2.0 * (points - centre).pow(2).sum(dim=-1)) + 0.5 * points[..., 0]
    return foil, points, pressure


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(12)
    HISTORY.clear()
    model = SurfaceModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.2e-2, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=40, T_mult=2, eta_min=1e-5)

    def step(i: int) -> None:
        foil, points, pressure = cases()
        loss = nn.functional.l1_loss(model(foil, points), pressure)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
