"""openai/guided-diffusion#111: gradients of the micro-batches are summed and not divided by their number.

AdamW does not mind a constant factor in the gradient, so the run learns as it should.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 250
HISTORY: list[float] = []
BATCH, MICRO, TIMESTEPS = 64, 16, 100


class EpsModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(16, 48)
        self.inp = nn.Linear(2, 48)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 2))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        freqs = torch.exp(-math.log(1000.0) * torch.arange(8) / 8)
        angles = t[:, None].float() * freqs
        return self.body(self.inp(x) + self.time(torch.cat([angles.cos(), angles.sin()], dim=1)))


def letters(n: int) -> Tensor:
    corner = torch.randint(0, 4, (n,))
    middle = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])[corner]
    return middle + 0.05 * torch.randn(n, 2)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(19)
    HISTORY.clear()
    alphas_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.08, TIMESTEPS), dim=0)
    model = EpsModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)

    def step(i: int) -> None:
        batch = letters(BATCH)
        optimizer.zero_grad()
        total = 0.0
        for start in range(0, BATCH, MICRO):
            x0 = batch[start : start + MICRO]
            t = torch.randint(0, TIMESTEPS, (len(x0),))
            noise = torch.randn_like(x0)
            scale = alphas_bar[t][:, None]
            loss = nn.functional.mse_loss(model(scale.sqrt() * x0 + (1 - scale).sqrt() * noise, t), noise)
            loss.backward()
            total += loss.item()
        optimizer.step()
        HISTORY.append(total * MICRO / BATCH)

    return model, optimizer, step
