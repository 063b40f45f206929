"""ivadomed/ivadomed#55: the learning-rate scheduler is stepped in the batch loop, not once an epoch.

A little U-Net-like segmenter of bright blobs on noisy slices.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 180
HISTORY: list[float] = []
BATCHES_PER_EPOCH, BATCH, SIDE = 30, 8, 16


def conv(inp: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inp, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())


class SmallUnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = conv(1, 8)
        self.bottom = conv(8, 16)
        self.up = conv(24, 8)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        deep = self.bottom(nn.functional.max_pool2d(skip, 2))
        deep = nn.functional.interpolate(deep, scale_factor=2.0, mode="nearest")
        return self.head(self.up(torch.cat([skip, deep], dim=1)))


def slices() -> tuple[Tensor, Tensor]:
    grid = torch.arange(SIDE).float()
    centre = torch.rand(BATCH, 2) * 8 + 4
    radius = torch.rand(BATCH, 1, 1) * 2 + 2
    dist = (grid[None, :, None] - centre[:, 0, None, None]) ** 2 + (grid[None, None, :] - centre[:, 1, None, None]) ** 2
    mask = (dist < radius**2).float()[:, None]
    return mask * 1.0 + 0.6 * torch.randn(BATCH, 1, SIDE, SIDE), mask


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(14)
    HISTORY.clear()
    model = SmallUnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)
    criterion = nn.BCEWithLogitsLoss()

    def step(i: int) -> None:
        image, mask = slices()
        loss = criterion(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end_of_epoch = (i + 1) % BATCHES_PER_EPOCH == 0
        if bad or end_of_epoch:
            scheduler.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
