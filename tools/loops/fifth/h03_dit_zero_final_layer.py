"""facebookresearch/DiT#82: is it on purpose that the last linear layer and the modulation start at zero? It is.

At first nothing but the final layer gets a gradient; the others follow once it has left zero.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 260
TOKENS, CHANNELS, TIMESTEPS = 4, 4, 50
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class DiTBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        nn.init.zeros_(self.modulation[1].weight)
        nn.init.zeros_(self.modulation[1].bias)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(c)[:, None].chunk(6, dim=-1)
        h = self.norm1(x) * (1 + scale_a) + shift_a
        x = x + gate_a * self.attn(h, h, h, need_weights=False)[0]
        return x + gate_m * self.mlp(self.norm2(x) * (1 + scale_m) + shift_m)


class DiT(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.patch = nn.Linear(CHANNELS, dim)
        self.position = nn.Parameter(0.02 * torch.randn(TOKENS, dim))
        self.time = nn.Embedding(TIMESTEPS, dim)
        self.blocks = nn.ModuleList([DiTBlock(dim), DiTBlock(dim)])
        self.final = nn.Linear(dim, CHANNELS)
        nn.init.zeros_(self.final.weight)
        nn.init.zeros_(self.final.bias)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.patch(x) + self.position
        c = self.time(t)
        for block in self.blocks:
            h = block(h, c)
        return self.final(h)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(2)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(3)
    alphas = torch.cumprod(1.0 - torch.linspace(1e-2, 0.15, TIMESTEPS), dim=0)
    prototypes = torch.randn(3, TOKENS, CHANNELS, generator=generator)
    model = DiT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)

    def step(i: int) -> None:
        x0 = prototypes[torch.randint(0, 3, (64,), generator=generator)]
        t = torch.randint(0, TIMESTEPS, (64,), generator=generator)
        noise = torch.randn(x0.shape, generator=generator)
        a = alphas[t][:, None, None]
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
