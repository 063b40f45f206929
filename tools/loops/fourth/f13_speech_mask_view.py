"""vitrioil/Speech-Separation#4: (batch, channel, time, freq) is viewed as (batch, time, channel * freq).

A mask estimator on spectrograms: convolutions, then a BLSTM over time, then a mask for each frame.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, TIME, FREQ, CHANNELS = 12, 20, 12, 6


class MaskNet(nn.Module):
    def __init__(self, scramble: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, kernel_size=(1, 5), padding=(0, 2))
        self.conv2 = nn.Conv2d(12, CHANNELS, kernel_size=(1, 5), padding=(0, 2))
        self.blstm = nn.LSTM(CHANNELS * FREQ, 32, bidirectional=True, batch_first=True)
        self.mask = nn.Linear(64, FREQ)
        self.scramble = scramble

    def forward(self, spec: Tensor) -> Tensor:
        batch, time, _ = spec.shape
        h = torch.relu(self.conv1(spec[:, None]))
        h = torch.relu(self.conv2(h))
        if self.scramble:
            h = h.view(batch, time, -1)
        else:
            h = h.permute(0, 2, 1, 3).reshape(batch, time, -1)
        out, _ = self.blstm(h)
        return torch.sigmoid(self.mask(out))


def mixtures() -> tuple[Tensor, Tensor]:
    """The speaker's pitch jumps about from frame to frame; its partials sit above it."""
    freq = torch.arange(FREQ)
    pitch = torch.randint(0, 4, (BATCH, TIME, 1))
    partials = ((freq - pitch) % 4 == 0) & (freq >= pitch)
    voice = partials.float() * (torch.rand(BATCH, TIME, 1) < 0.8)
    return voice + 0.3 * torch.randn(BATCH, TIME, FREQ), voice


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(12)
    HISTORY.clear()
    model = MaskNet(scramble=bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

    def step(i: int) -> None:
        spec, voice = mixtures()
        loss = nn.functional.mse_loss(model(spec), voice)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
