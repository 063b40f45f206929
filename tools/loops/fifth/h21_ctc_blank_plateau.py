"""SeanNaren/warp-ctc#63: predictions are all blanks and the loss seems stuck; that is the usual plateau of early CTC.

After the fall to the all-blank answer the loss rests for a while, and then the characters appear.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 280
BLANK, LETTERS, WIDTH, LABELS = 0, 6, 14, 3
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class CRNN(nn.Module):
    def __init__(self, height: int = 6, hidden: int = 24) -> None:
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv1d(height, 24, 3, padding=1), nn.ReLU())
        self.rnn = nn.GRU(24, hidden, bidirectional=True)
        self.embedding = nn.Linear(2 * hidden, LETTERS + 1)

    def forward(self, line: torch.Tensor) -> torch.Tensor:
        conv = self.cnn(line).permute(2, 0, 1)
        recurrent, _ = self.rnn(conv)
        return self.embedding(recurrent).log_softmax(dim=2)


def handwriting(generator: torch.Generator, glyphs: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    text = torch.randint(1, LETTERS + 1, (batch, LABELS), generator=generator)
    line = 0.2 * torch.randn(batch, 6, WIDTH, generator=generator)
    jitter = torch.randint(0, 2, (batch,), generator=generator)
    for row in range(batch):
        for place in range(LABELS):
            begin = int(jitter[row]) + 4 * place + 1
            line[row, :, begin : begin + 2] += glyphs[text[row, place] - 1][:, None]
    return line, text


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(20)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(21)
    glyphs = 1.5 * torch.randn(LETTERS, 6, generator=generator)
    model = CRNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    input_lengths = torch.full((16,), WIDTH)
    target_lengths = torch.full((16,), LABELS)

    def step(i: int) -> None:
        line, text = handwriting(generator, glyphs, 16)
        loss = F.ctc_loss(model(line), text, input_lengths, target_lengths, blank=BLANK)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
