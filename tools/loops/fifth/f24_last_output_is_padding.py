"""thtrieu/qclass_dl#1: outputs[-1] of the padded batch was classified, which is the state after many pad words.

Questions are short and padded to a fixed length, so their meaning has faded when it is read.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
PAD, VOCAB, MAX_LEN, CLASSES = 0, 30, 60, 6
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class QuestionLSTM(nn.Module):
    def __init__(self, take_last: bool, embed: int = 16, hidden: int = 32) -> None:
        super().__init__()
        self.take_last = take_last
        self.embedding = nn.Embedding(VOCAB, embed, padding_idx=PAD)
        self.lstm = nn.LSTM(embed, hidden)
        self.output = nn.Linear(hidden, CLASSES)

    def forward(self, questions: torch.Tensor, real_len: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.lstm(self.embedding(questions).transpose(0, 1))
        if self.take_last:
            summary = outputs[-1]
        else:
            summary = outputs[real_len - 1, torch.arange(questions.size(0))]
        return self.output(summary)


def questions_batch(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The class follows from the question word, which stands anywhere among the first words."""
    label = torch.randint(0, CLASSES, (batch,), generator=generator)
    real_len = torch.randint(4, 9, (batch,), generator=generator)
    words = torch.randint(1 + CLASSES, VOCAB, (batch, MAX_LEN), generator=generator)
    spot = (torch.rand(batch, generator=generator) * real_len).long()
    words[torch.arange(batch), spot] = 1 + label
    words[torch.arange(MAX_LEN)[None] >= real_len[:, None]] = PAD
    return words, real_len, label


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(23)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(25)
    model = QuestionLSTM(take_last=bad)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(i: int) -> None:
        questions, real_len, label = questions_batch(generator, 32)
        loss = F.cross_entropy(model(questions, real_len), label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
