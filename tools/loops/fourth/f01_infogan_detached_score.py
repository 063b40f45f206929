"""wangle53/CSA-CDGAN#5: the generator's adversarial term is computed from a detached discriminator score.

A one-dimensional InfoGAN: the generator has an adversarial term and a code-recovery term.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 300
OTHERS: list[torch.optim.Optimizer] = []
HISTORY: list[float] = []
BATCH = 128


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, noise: Tensor, code: Tensor) -> Tensor:
        return self.body(torch.cat([noise, code], dim=1))


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2))
        self.score = nn.Linear(48, 1)
        self.code = nn.Linear(48, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(x)
        return self.score(h), self.code(h)


class InfoGan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = Generator()
        self.critic = Critic()


def real_batch(n: int) -> Tensor:
    angle = torch.rand(n, 1) * torch.pi
    ring = torch.cat([3.0 + torch.cos(angle), -2.0 + torch.sin(angle)], dim=1)
    return ring + 0.05 * torch.randn(n, 2)


def evaluate(model: InfoGan) -> float:
    """Mean distance from a generated point to its nearest real one."""
    state = torch.get_rng_state()
    torch.manual_seed(99)
    with torch.no_grad():
        fake = model.generator(torch.randn(256, 4), torch.rand(256, 1) * 2 - 1)
        gap = torch.cdist(fake, real_batch(512)).min(dim=1).values.mean().item()
    torch.set_rng_state(state)
    return gap


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(3)
    HISTORY.clear()
    OTHERS.clear()
    model = InfoGan()
    opt_g = torch.optim.Adam(model.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(model.critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
    OTHERS.append(opt_d)
    bce = nn.BCEWithLogitsLoss()

    def step(i: int) -> None:
        real = real_batch(BATCH)
        code = torch.rand(BATCH, 1) * 2 - 1
        fake = model.generator(torch.randn(BATCH, 4), code)

        opt_d.zero_grad()
        pred_real, _ = model.critic(real)
        pred_fake, _ = model.critic(fake.detach())
        loss_d = bce(pred_real, torch.ones_like(pred_real)) + bce(pred_fake, torch.zeros_like(pred_fake))
        loss_d.backward()
        opt_d.step()

        opt_g.zero_grad()
        pred_fake, guess = model.critic(fake)
        if bad:
            pred_fake = pred_fake.detach()
        loss_adv = bce(pred_fake, torch.ones_like(pred_fake))
        loss_code = nn.functional.mse_loss(guess, code)
        loss_g = loss_adv + 0.1 * loss_code
        loss_g.backward()
        opt_g.step()
        HISTORY.append(loss_g.item())

    return model, opt_g, step
