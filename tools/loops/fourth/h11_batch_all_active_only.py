"""omoindrot/tensorflow-triplet-loss#6: the batch-all loss hovers near the margin, as only active triplets are averaged.

What falls is the share of active triplets, and that is what HISTORY holds.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
CLASSES, PER_CLASS, PIXELS, MARGIN = 6, 6, 32, 0.5


class DigitEmbedder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(PIXELS, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def batch_all(z: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    dist = torch.cdist(z, z)
    same = label[:, None] == label[None, :]
    valid = (same & ~torch.eye(len(z), dtype=torch.bool))[:, :, None] & ~same[:, None, :]
    triplets = torch.relu(dist[:, :, None] - dist[:, None, :] + MARGIN) * valid
    active = (triplets > 1e-16).sum()
    return triplets.sum() / (active + 1e-16), active / valid.sum()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(11)
    HISTORY.clear()
    prototypes = torch.randn(CLASSES, PIXELS)
    model = DigitEmbedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    label = torch.arange(CLASSES).repeat_interleave(PER_CLASS)

    def step(i: int) -> None:
        x = prototypes[label] + 1.2 * torch.randn(len(label), PIXELS)
        loss, active = batch_all(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(active.item())

    return model, optimizer, step
