"""tsinghua-rll/VoxelNet-tensorflow#10: the region proposal heads ended in batch norm and ReLU like any other layer.

Scores cannot say "no" and boxes cannot shrink or move backwards.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 160
GRID = 8
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class ConvMD(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, activation: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, padding=kernel // 2)
        self.bn = nn.BatchNorm2d(cout) if activation else nn.Identity()
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x))
        return F.relu(x) if self.activation else x


class RegionProposal(nn.Module):
    def __init__(self, output_activation: bool) -> None:
        super().__init__()
        self.block1 = nn.Sequential(ConvMD(3, 16, 3), ConvMD(16, 24, 3))
        self.prob = ConvMD(24, 1, 1, activation=output_activation)
        self.reg = ConvMD(24, 4, 1, activation=output_activation)

    def forward(self, voxels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.block1(voxels)
        return self.prob(x).squeeze(1), self.reg(x)


def sweeps(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Occupancy with two moments per cell; the box residuals can be read from the moments."""
    car = (torch.rand(batch, GRID, GRID, generator=generator) < 0.12).float()
    moment = torch.randn(batch, 2, GRID, GRID, generator=generator)
    voxels = torch.cat([car[:, None] + 0.2 * torch.randn(batch, 1, GRID, GRID, generator=generator), moment], dim=1)
    delta = torch.stack([moment[:, 0], moment[:, 1], moment[:, 0] - moment[:, 1], -moment[:, 0]], dim=1)
    return voxels, car, 0.7 * delta


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(12)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(14)
    model = RegionProposal(output_activation=bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i: int) -> None:
        voxels, car, delta = sweeps(generator, 12)
        p_map, r_map = model(voxels)
        cls = F.binary_cross_entropy_with_logits(p_map, car, reduction="none")
        cls_pos = (cls * car).sum() / car.sum().clamp(min=1)
        cls_neg = (cls * (1 - car)).sum() / (1 - car).sum()
        reg = (F.smooth_l1_loss(r_map, delta, reduction="none").sum(dim=1) * car).sum() / car.sum().clamp(min=1)
        loss = 1.5 * cls_pos + cls_neg + reg
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
