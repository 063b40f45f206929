"""lucas-maes/le-wm#44: the latent prediction loss has no stop-gradient on the target; a regulariser prevents collapse.

The prediction loss alone may even rise at first, as the embeddings spread to the wanted Gaussian.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 250
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class LatentWorldModel(nn.Module):
    def __init__(self, pixels: int = 16, latent: int = 4, actions: int = 2) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 48), nn.GELU(), nn.Linear(48, latent))
        self.predictor = nn.Sequential(nn.Linear(latent + actions, 48), nn.GELU(), nn.Linear(48, latent))

    def forward(self, obs: torch.Tensor, action: torch.Tensor, nxt: torch.Tensor) -> tuple[torch.Tensor, ...]:
        emb, tgt_emb = self.encoder(obs), self.encoder(nxt)
        return emb, self.predictor(torch.cat([emb, action], dim=-1)), tgt_emb


def sketched_gaussian_loss(emb: torch.Tensor, slices: int = 16) -> torch.Tensor:
    """Compares the characteristic function of random projections with that of a standard normal."""
    direction = torch.nn.functional.normalize(torch.randn(emb.size(1), slices), dim=0)
    t = torch.linspace(0.2, 3.0, 12)
    phase = (emb @ direction)[..., None] * t
    real, imaginary = phase.cos().mean(dim=0), phase.sin().mean(dim=0)
    return ((real - torch.exp(-0.5 * t**2)) ** 2 + imaginary**2).mean()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(7)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(8)
    camera = torch.randn(4, 16, generator=generator) / 2.0
    push = torch.randn(2, 4, generator=generator) / 2.0
    model = LatentWorldModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(i: int) -> None:
        state = torch.randn(96, 4, generator=generator)
        action = torch.randn(96, 2, generator=generator)
        nxt = 0.8 * state + action @ push
        emb, pred_emb, tgt_emb = model(torch.tanh(state @ camera), action, torch.tanh(nxt @ camera))
        pred_loss = (pred_emb - tgt_emb).pow(2).mean()
        loss = pred_loss + 20.0 * sketched_gaussian_loss(torch.cat([emb, tgt_emb]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
