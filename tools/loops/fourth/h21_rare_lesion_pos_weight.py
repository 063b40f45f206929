"""ImprintLab/Medical-SAM2#78: a learner asks about the weight on positives in the mask loss; it is on purpose.

Barely two pixels in a hundred belong to a lesion, so positives are weighted up and the loss is not a likelihood.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, SIDE = 12, 16


class MaskDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.GELU())
        self.block = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.GELU())
        self.mask = nn.Conv2d(12, 1, 1)
        nn.init.constant_(self.mask.bias, -4.0)

    def forward(self, scan: Tensor) -> Tensor:
        h = self.stem(scan)
        return self.mask(h + self.block(h))


def scans() -> tuple[Tensor, Tensor]:
    mask = torch.zeros(BATCH, 1, SIDE, SIDE)
    for k in range(BATCH):
        if torch.rand(()) < 0.7:
            y, x = torch.randint(1, SIDE - 3, (2,)).tolist()
            mask[k, 0, y : y + 2, x : x + 3] = 1.0
    return 2.0 * mask + 0.5 * torch.randn_like(mask), mask


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(21)
    HISTORY.clear()
    model = MaskDecoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.ones([1]) * 10)

    def step(i: int) -> None:
        scan, mask = scans()
        loss = criterion(model(scan), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
