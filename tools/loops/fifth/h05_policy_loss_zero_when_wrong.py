"""yanweiyue/GDesigner#1: the loss is -log_prob * utility, zero for wrong answers and positive for right ones; correct.

The number grows and shrinks with the luck of the draw and says little, while the share of right answers rises.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 300
AGENTS = 3
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class EdgeSampler(nn.Module):
    """Samples which of the agents talk to each other, for a task described by a few numbers."""

    def __init__(self, task_dim: int = 4, width: int = 24) -> None:
        super().__init__()
        self.roles = nn.Parameter(0.3 * torch.randn(AGENTS, width))
        self.task = nn.Linear(task_dim, width)
        self.left = nn.Linear(width, width)
        self.right = nn.Linear(width, width)

    def forward(self, task: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.roles + self.task(task)[:, None])
        return torch.einsum("bid,bjd->bij", self.left(h), self.right(h)) / 5.0


def utility_of(edges: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Right when a random check of one edge finds it as the task wants it."""
    batch = edges.size(0)
    agree = (edges == wanted).float().flatten(1)
    check = torch.randint(0, AGENTS * AGENTS, (batch, 1))
    return agree.gather(1, check).prod(dim=1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(4)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(5)
    wanted = (torch.rand(AGENTS, AGENTS, generator=generator) > 0.5).float()
    model = EdgeSampler()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)

    def step(i: int) -> None:
        task = torch.randn(96, 4, generator=generator)
        logits = model(task)
        dist = torch.distributions.Bernoulli(logits=logits)
        edges = dist.sample()
        log_prob = dist.log_prob(edges).sum(dim=(1, 2))
        utility = utility_of(edges, wanted)
        loss = torch.mean(-log_prob * utility)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(1.0 - (edges == wanted).float().mean().item())

    return model, optimizer, step
