"""caogang/wgan-gp#45: losses of critic and generator are negative and wander; for WGAN-GP that is as it should be.

The critic takes five steps for each of the generator's; the samples do come to lie on the data.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
OTHERS: list[torch.optim.Optimizer] = []
HISTORY: list[float] = []
BATCH, LAMBDA, CRITIC_ITERS = 96, 1.0, 5


class Wgan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 2))
        self.critic = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))


def swiss_line(n: int) -> Tensor:
    t = torch.rand(n, 1) * 2 - 1
    return torch.cat([2.0 + t, 1.0 + t**2], dim=1) + 0.05 * torch.randn(n, 2)


def evaluate(model: Wgan) -> float:
    """Mean distance from a sample to the nearest of many real points."""
    state = torch.get_rng_state()
    torch.manual_seed(99)
    with torch.no_grad():
        gap = torch.cdist(model.generator(torch.randn(256, 2)), swiss_line(512)).min(dim=1).values.mean().item()
    torch.set_rng_state(state)
    return gap


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (grad.norm(dim=1) - 1).pow(2).mean()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(2)
    HISTORY.clear()
    OTHERS.clear()
    model = Wgan()
    opt_g = torch.optim.Adam(model.generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(model.critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    OTHERS.append(opt_c)

    def step(i: int) -> None:
        for _ in range(CRITIC_ITERS):
            real = swiss_line(BATCH)
            fake = model.generator(torch.randn(BATCH, 2)).detach()
            loss_c = model.critic(fake).mean() - model.critic(real).mean()
            loss_c = loss_c + LAMBDA * gradient_penalty(model.critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        opt_g.zero_grad()
        loss_g = -model.critic(model.generator(torch.randn(BATCH, 2))).mean()
        loss_g.backward()
        opt_g.step()
        HISTORY.append(-loss_c.item())

    return model, opt_g, step
