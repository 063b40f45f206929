"""xingruiyu/coteaching_plus#7: two networks choose small-loss examples for each other, to leave out wrong labels.

Two fifths of the labels are wrong and the forget rate grows, so much of every batch is thrown away on purpose.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 240
CLASSES, NOISE = 5, 0.4
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


def tabular_net(inputs: int = 10, width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, CLASSES))


def loss_coteaching(y_1: torch.Tensor, y_2: torch.Tensor, t: torch.Tensor, forget_rate: float) -> list[torch.Tensor]:
    remember = int((1 - forget_rate) * len(t))
    with torch.no_grad():
        clean_1 = F.cross_entropy(y_1, t, reduction="none").argsort()[:remember]
        clean_2 = F.cross_entropy(y_2, t, reduction="none").argsort()[:remember]
    return [F.cross_entropy(y_1[clean_2], t[clean_2]), F.cross_entropy(y_2[clean_1], t[clean_1])]


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(16)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(17)
    centres = 1.5 * torch.randn(CLASSES, 10, generator=generator)
    clean = torch.randint(0, CLASSES, (1200,), generator=generator)
    x = centres[clean] + torch.randn(1200, 10, generator=generator)
    flipped = torch.rand(1200, generator=generator) < NOISE
    noisy = torch.where(flipped, torch.randint(0, CLASSES, (1200,), generator=generator), clean)
    model, second = tabular_net(), tabular_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    optimizer_2 = torch.optim.Adam(second.parameters(), lr=3e-3)
    OTHERS.append(optimizer_2)

    def step(i: int) -> None:
        forget_rate = NOISE * 0.8 * min(1.0, i / (STEPS / 3))
        picked = torch.randint(0, 1000, (64,), generator=generator)
        loss_1, loss_2 = loss_coteaching(model(x[picked]), second(x[picked]), noisy[picked], forget_rate)
        optimizer.zero_grad()
        loss_1.backward()
        optimizer.step()
        optimizer_2.zero_grad()
        loss_2.backward()
        optimizer_2.step()
        model.eval()
        with torch.no_grad():
            LOG.append(F.cross_entropy(model(x[1000:]), clean[1000:]).item())
        model.train()

    return model, optimizer, step
