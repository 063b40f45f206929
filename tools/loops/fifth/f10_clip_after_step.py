"""jongwook/onsets-and-frames#24: clip_grad_norm_ stood after optimizer.step(), where it clips nothing.

A recurrent transcription model with long memory gets gradients of hundreds in its first steps and is thrown away.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_

STEPS = 150
MELS, PITCHES, FRAMES = 12, 6, 32
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class OnsetStack(nn.Module):
    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.acoustic = nn.Linear(MELS, hidden)
        self.recurrent = nn.RNN(hidden, hidden, batch_first=True, nonlinearity="relu")
        self.frame_head = nn.Linear(hidden, PITCHES)
        nn.init.eye_(self.recurrent.weight_hh_l0)
        with torch.no_grad():
            self.recurrent.weight_hh_l0.mul_(1.06)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(torch.relu(self.acoustic(mel)))
        return self.frame_head(hidden)


def recordings(generator: torch.Generator, filters: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    velocity = torch.rand(batch, FRAMES, PITCHES, generator=generator)
    roll = velocity * (torch.rand(batch, FRAMES, PITCHES, generator=generator) < 0.3).float()
    mel = roll @ filters + 0.05 * torch.randn(batch, FRAMES, MELS, generator=generator)
    return mel, roll


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(9)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(44)
    filters = torch.randn(PITCHES, MELS, generator=generator)
    model = OnsetStack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(i: int) -> None:
        mel, roll = recordings(generator, filters, 16)
        velocity = model(mel)
        loss = F.smooth_l1_loss(velocity, roll, reduction="sum") / (16 * FRAMES)
        optimizer.zero_grad()
        loss.backward()
        if bad:
            optimizer.step()
            clip_grad_norm_(model.parameters(), 0.5)
        else:
            clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
