"""pytorch/pytorch#130342: with label_smoothing the cross entropy stops well above zero even for a perfect model.

The loss flattens at its floor, about 0.64 here, and the accuracy is complete.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 160
CLASSES = 8
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class Mixer(nn.Module):
    def __init__(self, tokens: int = 6, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Linear(4, channels)
        self.norm1 = nn.LayerNorm(channels)
        self.token_mix = nn.Sequential(nn.Linear(tokens, 12), nn.GELU(), nn.Linear(12, tokens))
        self.norm2 = nn.LayerNorm(channels)
        self.channel_mix = nn.Sequential(nn.Linear(channels, 32), nn.GELU(), nn.Linear(32, channels))
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channel_mix(self.norm2(x))
        return self.head(x.mean(dim=1))


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(15)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(16)
    prototypes = torch.randn(CLASSES, 6, 4, generator=generator)
    model = Mixer()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.15)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def step(i: int) -> None:
        label = torch.randint(0, CLASSES, (64,), generator=generator)
        x = prototypes[label] + 0.4 * torch.randn(64, 6, 4, generator=generator)
        loss = criterion(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
