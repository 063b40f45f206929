"""hassony2/kinetics_i3d_pytorch#6: dropout_keep_prob=1 was handed to nn.Dropout, which takes the chance to drop.

Every feature that goes to the last convolution of the inflated video network is zeroed while it trains.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 140
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class Unit3Dpy(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel: int = 3, activation: bool = True) -> None:
        super().__init__()
        self.conv3d = nn.Conv3d(in_channels, out_channels, kernel, padding=kernel // 2, bias=not activation)
        self.batch3d = nn.BatchNorm3d(out_channels) if activation else None

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        out = self.conv3d(clip)
        if self.batch3d is not None:
            out = torch.relu(self.batch3d(out))
        return out


class I3D(nn.Module):
    def __init__(self, num_classes: int, dropout_keep_prob: float, as_drop_rate: bool) -> None:
        super().__init__()
        self.conv3d_1a = Unit3Dpy(1, 8)
        self.maxpool = nn.MaxPool3d((1, 2, 2))
        self.mixed = Unit3Dpy(8, 16)
        self.dropout = nn.Dropout(1.0 - dropout_keep_prob if as_drop_rate else dropout_keep_prob)
        self.conv3d_0c = Unit3Dpy(16, num_classes, kernel=1, activation=False)

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        out = self.mixed(self.maxpool(self.conv3d_1a(clip)))
        out = out.mean(dim=(3, 4), keepdim=True)
        out = self.conv3d_0c(self.dropout(out))
        return out.flatten(2).mean(dim=2)


def moving_dots(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A dot goes up, down, left or right over six frames."""
    labels = torch.randint(0, 4, (batch,), generator=generator)
    start = torch.randint(0, 8, (batch, 2), generator=generator)
    move = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])[labels]
    clips = 0.1 * torch.randn(batch, 1, 6, 8, 8, generator=generator)
    for frame in range(6):
        spot = (start + frame * move) % 8
        clips[torch.arange(batch), 0, frame, spot[:, 0], spot[:, 1]] += 2.0
    return clips, labels


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(8)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(23)
    model = I3D(num_classes=4, dropout_keep_prob=1.0, as_drop_rate=not bad)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-7)

    def step(i: int) -> None:
        clips, labels = moving_dots(generator, 24)
        logits = model(clips)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
