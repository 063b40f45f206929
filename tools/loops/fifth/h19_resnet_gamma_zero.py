"""google-deepmind/sonnet#185: the scale of the last batch norm of each residual block starts at zero, and may.

The blocks are the identity at first, and their convolutions get no gradient until the scale has moved.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 140
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class BottleNeckBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_0 = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.bn_0 = nn.BatchNorm2d(channels // 2)
        self.conv_1 = nn.Conv2d(channels // 2, channels // 2, 3, padding=1, bias=False)
        self.bn_1 = nn.BatchNorm2d(channels // 2)
        self.conv_2 = nn.Conv2d(channels // 2, channels, 1, bias=False)
        self.bn_2 = nn.BatchNorm2d(channels)
        nn.init.zeros_(self.bn_2.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn_0(self.conv_0(inputs)))
        out = F.relu(self.bn_1(self.conv_1(out)))
        return F.relu(self.bn_2(self.conv_2(out)) + inputs)


class ResNet(nn.Module):
    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.initial_conv = nn.Conv2d(1, channels, 1)
        self.blocks = nn.Sequential(BottleNeckBlock(channels), BottleNeckBlock(channels))
        self.logits = nn.Linear(channels, classes)
        nn.init.zeros_(self.logits.weight)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(self.blocks(self.initial_conv(images)).mean(dim=(2, 3)))


def gratings(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    label = torch.randint(0, 4, (batch,), generator=generator)
    ys, xs = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    angle = label[:, None, None] * torch.pi / 4
    phase = 6.28 * torch.rand(batch, 1, 1, generator=generator)
    wave = torch.sin(1.9 * (angle.cos() * xs + angle.sin() * ys) + phase)
    return wave[:, None] + 0.2 * torch.randn(batch, 1, 8, 8, generator=generator), label


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(18)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(19)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)

    def step(i: int) -> None:
        images, label = gratings(generator, 40)
        loss = F.cross_entropy(model(images), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
