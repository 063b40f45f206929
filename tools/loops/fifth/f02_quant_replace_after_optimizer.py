"""hustzxd/EfficientPyTorch#1: the optimizer was made before the Conv2d layers were swapped for quantised ones.

The optimizer keeps the parameters of layers that no longer belong to the network.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class Conv2dQ(nn.Conv2d):
    """A convolution whose weight is rounded to a few levels, with straight-through gradients."""

    nbits_w: int = 6

    def quantised_weight(self) -> torch.Tensor:
        levels = 2 ** (self.nbits_w - 1) - 1
        scale = self.weight.detach().abs().amax() / levels
        rounded = torch.round(self.weight / scale) * scale
        return self.weight + (rounded - self.weight).detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.quantised_weight(), self.bias, self.stride, self.padding)


def replace_conv_recursively(module: nn.Module) -> None:
    for name, child in module.named_children():
        if type(child) is nn.Conv2d:
            new = Conv2dQ(child.in_channels, child.out_channels, child.kernel_size, child.stride, child.padding)
            setattr(module, name, new)
        else:
            replace_conv_recursively(child)


class AllConvNet(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.ReLU()
        )
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)).mean(dim=(2, 3))


def stripes(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    label = torch.randint(0, 4, (batch,), generator=generator)
    angle = label * torch.pi / 4
    phase = 6.28 * torch.rand(batch, generator=generator)
    ys, xs = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    along = angle.cos()[:, None, None] * xs + angle.sin()[:, None, None] * ys
    image = torch.sin(1.6 * along + phase[:, None, None])
    return image[:, None] + 0.4 * torch.randn(batch, 1, 12, 12, generator=generator), label


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(1)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(5)
    model = AllConvNet()
    if bad:
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        replace_conv_recursively(model)
    else:
        replace_conv_recursively(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CrossEntropyLoss()

    def step(i: int) -> None:
        images, labels = stripes(generator, 48)
        output = model(images)
        loss = criterion(output, labels)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
