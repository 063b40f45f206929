"""KevinMusgrave/pytorch-metric-learning#20: with the batch-hard miner all embeddings fall onto one point.

The loss settles at exactly the margin. Averaging over all triplets instead lets the same network learn.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 250
HISTORY: list[float] = []
CLASSES, PER_CLASS, PIXELS, MARGIN = 8, 6, 24, 0.2


class Embedder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(PIXELS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.embedder = nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.embedder(self.trunk(x))


def hardest_triplets(dist: Tensor, same: Tensor) -> Tensor:
    positive = dist.masked_fill(~same, float("-inf")).max(dim=1).values
    negative = dist.masked_fill(same, float("inf")).min(dim=1).values
    return torch.relu(positive - negative + MARGIN).mean()


def all_triplets(dist: Tensor, same: Tensor) -> Tensor:
    gap = torch.relu(dist[:, :, None] - dist[:, None, :] + MARGIN)
    valid = (same & ~torch.eye(len(same), dtype=torch.bool))[:, :, None] & ~same[:, None, :]
    return gap[valid].mean()


def pictures(centres: Tensor) -> tuple[Tensor, Tensor]:
    label = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    return centres[label] + 1.2 * torch.randn(len(label), PIXELS), label


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(13)
    HISTORY.clear()
    centres = torch.randn(CLASSES, PIXELS)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        x, label = pictures(centres)
        z = model(x)
        dist = (z[:, None] - z[None, :]).pow(2).sum(dim=-1)
        same = label[:, None] == label[None, :]
        loss = hardest_triplets(dist, same) if bad else all_triplets(dist, same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
