"""SHI-Labs/StyleNAT#11: the discriminator loss drops to 1.39 and stays, which is 2 log 2 and what a good game gives.

Non-saturating logistic losses with an R1 penalty; the generated points match the real ones meanwhile.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 300
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


def mlp(inputs: int, outputs: int, width: int = 32) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outputs),
    )


def real_points(generator: torch.Generator, batch: int) -> torch.Tensor:
    return torch.tensor([3.0, -2.0]) + torch.randn(batch, 2, generator=generator) * torch.tensor([0.4, 1.0])


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(5)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(6)
    g_model, d_model = mlp(4, 2), mlp(2, 1)
    g_optim = torch.optim.Adam(g_model.parameters(), lr=4e-3, betas=(0.0, 0.99))
    d_optim = torch.optim.Adam(d_model.parameters(), lr=4e-3, betas=(0.0, 0.99))
    OTHERS.append(d_optim)

    def step(i: int) -> None:
        real = real_points(generator, 64).requires_grad_()
        fake = g_model(torch.randn(64, 4, generator=generator)).detach()
        real_pred = d_model(real)
        (slope,) = torch.autograd.grad(real_pred.sum(), real, create_graph=True)
        d_loss = F.softplus(-real_pred).mean() + F.softplus(d_model(fake)).mean()
        d_loss = d_loss + 0.5 * slope.pow(2).sum(dim=1).mean()
        d_optim.zero_grad()
        d_loss.backward()
        d_optim.step()

        fake = g_model(torch.randn(64, 4, generator=generator))
        g_loss = F.softplus(-d_model(fake)).mean()
        g_optim.zero_grad()
        g_loss.backward()
        g_optim.step()
        LOG.append((fake.detach().mean(0) - real.detach().mean(0)).norm().item())

    return g_model, g_optim, step
