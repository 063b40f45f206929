"""BINE022/EEGPT#18: the backbone has requires_grad yet does not train; only what surrounds it is in the optimizer.

The channel adapter before the backbone needs gradients that go through it, so it was not switched off.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 200
ELECTRODES, TIME = 10, 24
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class PretrainedEncoder(nn.Module):
    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.patch = nn.Conv1d(4, dim, 4, stride=4)
        layer = nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.patch(x).transpose(1, 2))


class LitEEG(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.chan_conv = nn.Conv1d(ELECTRODES, 4, 1)
        self.target_encoder = PretrainedEncoder()
        self.linear_probe1 = nn.Linear(24, 16)
        self.linear_probe2 = nn.Linear(16 * (TIME // 4), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.target_encoder.eval()
        z = self.target_encoder(self.chan_conv(x))
        return self.linear_probe2(self.linear_probe1(z).flatten(1))


def epochs_of_eeg(generator: torch.Generator, mixing: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    label = torch.randint(0, 3, (batch,), generator=generator)
    phase = 6.28 * torch.rand(batch, 1, generator=generator)
    rhythm = torch.sin(torch.arange(TIME)[None] * (0.4 + 0.5 * label[:, None]) + phase)
    noise = 0.5 * torch.randn(batch, ELECTRODES, TIME, generator=generator)
    return rhythm[:, None] * mixing[None, :, None] + noise, label


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(3)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(4)
    mixing = torch.randn(ELECTRODES, generator=generator)
    model = LitEEG()
    optimizer = torch.optim.AdamW(
        list(model.chan_conv.parameters())
        + list(model.linear_probe1.parameters())
        + list(model.linear_probe2.parameters()),
        lr=6e-3,
        weight_decay=0.01,
    )

    def step(i: int) -> None:
        x, y = epochs_of_eeg(generator, mixing, 48)
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
