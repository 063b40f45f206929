"""facebookresearch/simsiam#21: a user asks whether the negative loss is normal; it is a negative cosine similarity.

Nothing is wrong: the loss goes below zero and on towards -1, and the embeddings keep their spread.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS: int = 200
HISTORY: list[float] = []
BATCH, PIXELS, PARTS = 96, 24, 6


class SimSiam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(PIXELS, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32, affine=False)
        )
        self.predictor = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        z1, z2 = self.encoder(x1), self.encoder(x2)
        return self.predictor(z1), self.predictor(z2), z1.detach(), z2.detach()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(1)
    HISTORY.clear()
    mixing = torch.randn(PARTS, PIXELS)
    model = SimSiam()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)

    def step(i: int) -> None:
        things = torch.randn(BATCH, PARTS) @ mixing
        view1 = things + 0.8 * torch.randn_like(things)
        view2 = things * (1 + 0.2 * torch.randn(BATCH, 1)) + 0.8 * torch.randn_like(things)
        p1, p2, z1, z2 = model(view1, view2)
        loss = -0.5 * (F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
