"""cyprienruffino/CTCModel#12: for a while a network trained with CTC names nothing but blanks; later it learns.

Digits are drawn into a strip of noisy columns; the plateau lasts for a good part of the run.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 300
HISTORY: list[float] = []
BATCH, WIDTH, HEIGHT, DIGITS, WORD = 24, 20, 8, 6, 4


class StripReader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(HEIGHT, 32, 3, padding=1)
        self.lstm = nn.LSTM(32, 24, bidirectional=True, batch_first=True)
        self.dense = nn.Linear(48, DIGITS + 1)

    def forward(self, strip: Tensor) -> Tensor:
        h = torch.relu(self.conv(strip)).transpose(1, 2)
        h, _ = self.lstm(h)
        return self.dense(h).log_softmax(dim=-1).transpose(0, 1)


def strips(shapes: Tensor) -> tuple[Tensor, Tensor]:
    word = torch.randint(0, DIGITS, (BATCH, WORD))
    strip = 0.3 * torch.randn(BATCH, HEIGHT, WIDTH)
    slot = WIDTH // WORD
    for position in range(WORD):
        offset = torch.randint(0, slot - 1, (BATCH,)) + position * slot
        for column in range(2):
            strip[torch.arange(BATCH), :, offset + column] += shapes[word[:, position], :, column]
    return strip, word + 1


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(10)
    HISTORY.clear()
    shapes = 1.5 * torch.randn(DIGITS, HEIGHT, 2)
    model = StripReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    widths = torch.full((BATCH,), WIDTH, dtype=torch.long)
    lengths = torch.full((BATCH,), WORD, dtype=torch.long)

    def step(i: int) -> None:
        strip, word = strips(shapes)
        loss = criterion(model(strip), word, widths, lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
