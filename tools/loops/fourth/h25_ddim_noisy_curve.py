"""ermongroup/ddim#33: the diffusion loss jumps from step to step; every batch draws other timesteps.

A batch of late timesteps is easy and one of early timesteps hard, so neighbouring values tell little.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 280
HISTORY: list[float] = []
BATCH, LENGTH, TIMESTEPS = 8, 16, 200


class NoiseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temb = nn.Embedding(TIMESTEPS, 24)
        self.conv_in = nn.Conv1d(1, 24, 5, padding=2)
        self.conv_mid = nn.Conv1d(24, 24, 5, padding=2)
        self.norm = nn.GroupNorm(4, 24)
        self.conv_out = nn.Conv1d(24, 1, 5, padding=2)
        nn.init.zeros_(self.conv_out.weight)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.conv_in(x) + self.temb(t)[..., None]
        h = h + nn.functional.silu(self.norm(self.conv_mid(nn.functional.silu(h))))
        return self.conv_out(h)


def heartbeats() -> Tensor:
    t = torch.arange(LENGTH)
    peak = torch.rand(BATCH, 1) * LENGTH
    return (2.0 * torch.exp(-0.5 * (t[None, :] - peak).pow(2)) - 0.3)[:, None]


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(25)
    HISTORY.clear()
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.04, TIMESTEPS), dim=0)
    model = NoiseNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

    def step(i: int) -> None:
        x0, e = heartbeats(), torch.randn(BATCH, 1, LENGTH)
        t = torch.randint(0, TIMESTEPS, (BATCH // 2 + 1,))
        t = torch.cat([t, TIMESTEPS - t - 1], dim=0)[:BATCH]
        a = alphas[t][:, None, None]
        loss = (e - model(a.sqrt() * x0 + (1 - a).sqrt() * e, t)).square().sum(dim=(1, 2)).mean(dim=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
