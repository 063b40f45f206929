"""igorshmukler/kokoro-ruslan#20: the learning rate of the speech model follows a cosine with warm restarts.

At every restart the rate jumps from nearly nothing to its top and the loss may kick up for some steps.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

STEPS = 210
PHONEMES, MELS, LENGTH = 20, 8, 10
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class AcousticModel(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.phonemes = nn.Embedding(PHONEMES, dim)
        self.context = nn.LSTM(dim, dim // 2, bidirectional=True, batch_first=True)
        self.mel = nn.Linear(dim, MELS)
        self.postnet = nn.Sequential(nn.Conv1d(MELS, 16, 3, padding=1), nn.Tanh(), nn.Conv1d(16, MELS, 3, padding=1))

    def forward(self, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, _ = self.context(self.phonemes(text))
        coarse = self.mel(hidden)
        return coarse, coarse + self.postnet(coarse.transpose(1, 2)).transpose(1, 2)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(17)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(18)
    voice = torch.randn(PHONEMES, MELS, generator=generator)
    model = AcousticModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=1e-3)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=30, T_mult=2, eta_min=1e-5)

    def step(i: int) -> None:
        text = torch.randint(0, PHONEMES, (16, LENGTH), generator=generator)
        sound = voice[text]
        spectrogram = sound + 0.5 * sound.roll(1, dims=1)
        coarse, fine = model(text)
        loss = F.mse_loss(coarse, spectrogram) + F.mse_loss(fine, spectrogram)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        LOG.append(loss.item())

    return model, optimizer, step
