"""roggirg/AutoBots#7: the user wonders why the NLL of the trajectory forecaster is a negative number; it may well be.

A density may be larger than one, so the mean negative log-likelihood of small positional errors goes below zero.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 200
PAST, FUTURE, MODES = 6, 4, 3
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MotionForecaster(nn.Module):
    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.encoder = nn.GRU(2, hidden, batch_first=True)
        self.mode_queries = nn.Parameter(0.5 * torch.randn(MODES, hidden))
        self.decoder = nn.Sequential(nn.Linear(hidden, 48), nn.ReLU(), nn.Linear(48, FUTURE * 4))
        self.mode_logits = nn.Linear(hidden, 1)

    def forward(self, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        _, state = self.encoder(past)
        context = state[-1][:, None] + self.mode_queries
        mean, log_scale = self.decoder(context).view(-1, MODES, FUTURE, 4).chunk(2, dim=-1)
        return mean, log_scale.clamp(-5, 3), self.mode_logits(context).squeeze(-1)


def mixture_nll(mean: torch.Tensor, log_scale: torch.Tensor, logits: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    component = torch.distributions.Normal(mean, log_scale.exp()).log_prob(truth[:, None]).sum(dim=(2, 3))
    return -torch.logsumexp(component + logits.log_softmax(dim=1), dim=1).mean()


def traffic(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    velocity = 0.3 * torch.randn(batch, 1, 2, generator=generator)
    time = torch.arange(-PAST + 1, FUTURE + 1.0)[None, :, None]
    path = velocity * time + 0.02 * torch.randn(batch, PAST + FUTURE, 2, generator=generator)
    return path[:, :PAST], path[:, PAST:]


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(0)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(1)
    model = MotionForecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, eps=1e-4)

    def step(i: int) -> None:
        past, future = traffic(generator, 48)
        loss = mixture_nll(*model(past), future)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
