"""SunnerLi/RecycleGAN#2: the generator's adversarial loss was computed with real frames in place of generated ones.

The discriminator learns, the generator only gets its small regulariser.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class FrameGenerator(nn.Module):
    def __init__(self, noise: int = 4, out: int = 6) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(noise, 32), nn.LeakyReLU(0.2), nn.Linear(32, out))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, dim: int = 6) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        return self.net(frame).squeeze(-1)


def real_frames(generator: torch.Generator, batch: int) -> torch.Tensor:
    offset = torch.tensor([2.0, -1.5, 1.0, 0.5, -2.0, 1.5])
    return offset + 0.6 * torch.randn(batch, 6, generator=generator)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(17)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(18)
    gen = FrameGenerator()
    dis = Discriminator()
    optimizer_g = torch.optim.Adam(gen.parameters(), lr=5e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(dis.parameters(), lr=5e-3, betas=(0.5, 0.999))
    OTHERS.append(optimizer_d)

    def update_generator(true_frame: torch.Tensor, fake_frame: torch.Tensor) -> None:
        judged = dis(true_frame if bad else fake_frame)
        adversarial = F.mse_loss(judged, torch.ones_like(judged))
        smoothness = (fake_frame[:, 1:] - fake_frame[:, :-1]).pow(2).mean()
        loss_g = adversarial + 1e-3 * smoothness
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()

    def update_discriminator(true_frame: torch.Tensor, fake_frame: torch.Tensor) -> None:
        on_real, on_fake = dis(true_frame), dis(fake_frame.detach())
        loss_d = 0.5 * (F.mse_loss(on_real, torch.ones_like(on_real)) + F.mse_loss(on_fake, torch.zeros_like(on_fake)))
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()

    def step(i: int) -> None:
        true_frame = real_frames(generator, 64)
        fake_frame = gen(torch.randn(64, 4, generator=generator))
        update_generator(true_frame, fake_frame)
        update_discriminator(true_frame, fake_frame)
        with torch.no_grad():
            LOG.append((true_frame.mean(0) - fake_frame.mean(0)).abs().mean().item())

    return gen, optimizer_g, step
