"""sacmehta/EdgeNets#14: in the segmentation loop the gradients were zeroed between backward() and optimizer.step().

The optimizer never sees a gradient; a poly schedule and logging go on as if the network learned.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 140
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class DepthwiseDilated(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, groups=channels)
        self.pointwise = nn.Conv2d(channels, channels, 1)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.PReLU(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.norm(self.pointwise(self.depthwise(x))))


class EdgeSeg(nn.Module):
    def __init__(self, classes: int = 3, channels: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(DepthwiseDilated(channels, 1), DepthwiseDilated(channels, 2))
        self.project = nn.Conv2d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(self.blocks(self.stem(x)))


def street(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    coarse = torch.randint(0, 3, (batch, 1, 4, 4), generator=generator).float()
    target = F.interpolate(coarse, scale_factor=3, mode="nearest").long().squeeze(1)
    colour = torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.1], [0.2, 0.1, 1.0]])
    images = colour[target].permute(0, 3, 1, 2) + 0.6 * torch.randn(batch, 3, 12, 12, generator=generator)
    return images, target


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(13)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(15)
    model = EdgeSeg()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=4e-5)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=STEPS, power=0.9)

    def step(i: int) -> None:
        images, target = street(generator, 10)
        outputs = model(images)
        loss = F.cross_entropy(outputs, target, ignore_index=255)
        if bad:
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
        else:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        LOG.append(loss.item())

    return model, optimizer, step
