"""filipradenovic/cnnimageretrieval-pytorch#19: batch norms are put to eval() after model.train(), on purpose.

Tuples of a query, its positive and negatives come one by one, so batch statistics would be worthless.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 180
PLACES = 30
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class ImageRetrievalNet(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )
        self.p = nn.Parameter(torch.full((1,), 3.0))
        self.whiten = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        o = self.features(x).clamp(min=1e-6).pow(self.p).mean(dim=(2, 3)).pow(1.0 / self.p)
        return F.normalize(self.whiten(F.normalize(o)), dim=1)


def set_batchnorm_eval(m: nn.Module) -> None:
    if isinstance(m, nn.BatchNorm2d):
        m.eval()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(24)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(25)
    places = torch.randn(PLACES, 2, 6, 6, generator=generator)
    model = ImageRetrievalNet()
    for _ in range(30):
        model(places[torch.randint(0, PLACES, (16,), generator=generator)])
    optimizer = torch.optim.Adam(
        [
            {"params": model.features.parameters()},
            {"params": [model.p], "lr": 1e-2, "weight_decay": 0.0},
            {"params": model.whiten.parameters()},
        ],
        lr=2e-3,
        weight_decay=1e-4,
    )

    def photo(which: torch.Tensor) -> torch.Tensor:
        return places[which] + 0.7 * torch.randn(len(which), 2, 6, 6, generator=generator)

    def step(i: int) -> None:
        model.train()
        model.apply(set_batchnorm_eval)
        optimizer.zero_grad()
        total = 0.0
        for _ in range(6):
            chosen = torch.randperm(PLACES, generator=generator)[:5]
            anchor, positive, negatives = model(photo(torch.cat([chosen[:1], chosen]))).split([1, 1, 4])
            loss = F.triplet_margin_loss(anchor.expand(4, -1), positive.expand(4, -1), negatives, margin=0.5)
            loss.backward()
            total += loss.item()
        optimizer.step()
        LOG.append(total / 6)

    return model, optimizer, step
