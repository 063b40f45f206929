"""jthickstun/pytorch_musicnet#4: all weights of the model begin at zero; for one linear layer that does no harm.

Notes are told from the log spectrum of short windows, several at a time, most of them silent.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
BATCH, WINDOW, NOTES = 64, 128, 12


class LinearSpectrogram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WINDOW // 2 + 1, NOTES, bias=False)
        nn.init.constant_(self.linear.weight, 0.0)

    def forward(self, wave: Tensor) -> Tensor:
        return self.linear(torch.log(1e-1 + torch.fft.rfft(wave).abs()))


def chords() -> tuple[Tensor, Tensor]:
    on = (torch.rand(BATCH, NOTES) < 0.15).float()
    pitch = 4.0 + 3.0 * torch.arange(NOTES)
    t = torch.arange(WINDOW) / WINDOW
    tone = torch.sin(2 * torch.pi * (pitch[None, :, None] * t + torch.rand(BATCH, NOTES, 1)))
    return (on[..., None] * tone).sum(dim=1) + 0.1 * torch.randn(BATCH, WINDOW), on


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(7)
    HISTORY.clear()
    model = LinearSpectrogram()
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.95)

    def step(i: int) -> None:
        wave, on = chords()
        loss = (model(wave) - on).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
