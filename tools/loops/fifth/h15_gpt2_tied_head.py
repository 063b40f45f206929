"""huggingface/transformers#2824: is lm_head a matrix of its own? Its weight is that of the token embedding.

One parameter is used at both ends, appears once in the optimizer, and gets the sum of both gradients.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 220
VOCAB = 24
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class GRULMHeadModel(nn.Module):
    def __init__(self, n_embd: int = 32) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, n_embd)
        nn.init.normal_(self.wte.weight, std=0.02)
        self.rnn = nn.GRU(n_embd, n_embd, batch_first=True)
        self.project = nn.Linear(n_embd, n_embd)
        self.lm_head = nn.Linear(n_embd, VOCAB, bias=False)
        self.tie_weights()

    def tie_weights(self) -> None:
        self.lm_head.weight = self.wte.weight

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rnn(self.wte(input_ids))
        return self.lm_head(self.project(hidden))


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(14)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(15)
    follow = torch.stack([torch.randperm(VOCAB, generator=generator) for _ in range(2)])
    model = GRULMHeadModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01)

    def sentences(batch: int, length: int) -> torch.Tensor:
        ids = torch.randint(0, VOCAB, (batch, 1), generator=generator)
        for t in range(length):
            ids = torch.cat([ids, follow[t % 2, ids[:, -1:]]], dim=1)
        return ids

    def step(i: int) -> None:
        ids = sentences(24, 8)
        logits = model(ids)
        shift_logits, shift_labels = logits[:, :-1], ids[:, 1:]
        loss = F.cross_entropy(shift_logits.reshape(-1, VOCAB), shift_labels.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
