"""pytorch/torchtitan#3575: zero_grad sits in the forward-backward call, so only the last micro-batch counts.

Micro-batches come from buckets by prompt length, in a fixed order, short ones first.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
BUCKETS, VOCAB, MICRO = (4, 6, 8, 10), 16, 24


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 24)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, len(BUCKETS))

    def forward(self, ids: Tensor) -> Tensor:
        out, _ = self.rnn(self.embed(ids))
        return self.head(out.mean(dim=1))


class Trainer:
    def __init__(self, model: Scorer, optimizer: torch.optim.Optimizer, clear_in_backward: bool) -> None:
        self.model, self.optimizer, self.clear_in_backward = model, optimizer, clear_in_backward

    def forward_backward(self, ids: Tensor, labels: Tensor, scale: float) -> float:
        if self.clear_in_backward:
            self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(ids), labels)
        (loss * scale).backward()
        return loss.item()

    def optim_step(self) -> None:
        self.optimizer.step()
        if not self.clear_in_backward:
            self.optimizer.zero_grad()


def bucket_batch(index: int) -> tuple[Tensor, Tensor]:
    """Each bucket has its own slice of the alphabet and its own answer."""
    ids = torch.randint(4 * index, 4 * index + 4, (MICRO, BUCKETS[index]))
    labels = torch.full((MICRO,), index)
    return ids, labels


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(17)
    HISTORY.clear()
    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    trainer = Trainer(model, optimizer, clear_in_backward=bad)

    def step(i: int) -> None:
        total = 0.0
        for index in range(len(BUCKETS)):
            ids, labels = bucket_batch(index)
            total += trainer.forward_backward(ids, labels, scale=1.0 / len(BUCKETS)) / len(BUCKETS)
        trainer.optim_step()
        HISTORY.append(total)

    return model, optimizer, step
