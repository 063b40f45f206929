"""EDAPINENUT/GNTPP#4: the KL sum lacks its dim, so one scalar over the batch is charged to every event.

A small sequence VAE for marked events; each event has its own latent vector.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, LENGTH, FEATURES, LATENT = 16, 12, 6, 4


class EventVae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.history = nn.GRU(FEATURES, 24, batch_first=True)
        self.to_stats = nn.Linear(24, 2 * LATENT)
        self.decode = nn.Sequential(nn.Linear(LATENT, 32), nn.ReLU(), nn.Linear(32, FEATURES))

    def forward(self, events: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden, _ = self.history(events)
        mean, log_var = self.to_stats(hidden).chunk(2, dim=-1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decode(z), mean, log_var


def sample_events(mixing: Tensor) -> tuple[Tensor, Tensor]:
    factors = torch.randn(BATCH, LENGTH, 2)
    events = 2.0 * torch.tanh(factors @ mixing) + 0.05 * torch.randn(BATCH, LENGTH, FEATURES)
    lengths = torch.randint(6, LENGTH + 1, (BATCH,))
    mask = (torch.arange(LENGTH)[None, :] < lengths[:, None]).float()
    return events, mask


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(11)
    HISTORY.clear()
    mixing = torch.randn(2, FEATURES)
    model = EventVae()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    beta = 0.05

    def step(i: int) -> None:
        events, mask = sample_events(mixing)
        rebuilt, mean, log_var = model(events)
        recon = (rebuilt - events).pow(2).sum(dim=-1) * mask
        inner = 1 + log_var - mean.pow(2) - log_var.exp()
        kl = -0.5 * torch.sum(inner) if bad else -0.5 * torch.sum(inner, dim=-1)
        kl = kl * mask
        loss = (recon.sum() + beta * kl.sum()) / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append((recon.sum() / mask.sum()).item())

    return model, optimizer, step
