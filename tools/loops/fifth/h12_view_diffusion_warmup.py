"""a6o/3d-diffusion-pytorch#3: why does the learning rate grow with the step in warmup()? It is a linear warm-up.

The optimizer is made with a rate of nearly nothing, which the loop then sets by hand in its groups at every step.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 240
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class XUNet(nn.Module):
    """Predicts the noise in a target view, given a clean source view of the same object and the noise level."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.inp = nn.Conv2d(2, width, 3, padding=1)
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.mid = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, source: torch.Tensor, noisy: torch.Tensor, logsnr: torch.Tensor) -> torch.Tensor:
        h = self.inp(torch.cat([source, noisy], dim=1)) + self.level(logsnr[:, None])[:, :, None, None]
        return self.out(F.silu(h + self.mid(h)))


def warmup(optimizer: torch.optim.Optimizer, step: int, last_step: int, last_lr: float) -> None:
    rate = last_lr * min(1.0, (step + 1) / last_step)
    for group in optimizer.param_groups:
        group["lr"] = rate


def views(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (torch.rand(batch, 1, 4, 4, generator=generator) > 0.5).float() * 2 - 1
    view = F.interpolate(shape, scale_factor=2, mode="nearest")
    return view, view.roll(1, dims=3)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(11)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(12)
    model = XUNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-8, betas=(0.9, 0.99))

    def step(i: int) -> None:
        warmup(optimizer, i, last_step=STEPS // 2, last_lr=6e-3)
        source, target = views(generator, 24)
        logsnr = 8.0 * torch.rand(24, generator=generator) - 4.0
        alpha = torch.sigmoid(logsnr).sqrt()[:, None, None, None]
        sigma = torch.sigmoid(-logsnr).sqrt()[:, None, None, None]
        noise = torch.randn(target.shape, generator=generator)
        noise_hat = model(source, alpha * target + sigma * noise, logsnr)
        loss = F.mse_loss(noise_hat, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
