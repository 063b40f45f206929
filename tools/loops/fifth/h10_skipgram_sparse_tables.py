"""neubig/nn4nlp-code#26: skip-gram with negative sampling on sparse embedding tables, trained by SparseAdam.

The context table starts at zero, so at first the loss is exactly log 2 a term and the word table gets no gradient.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
WORDS, TOPICS, NEGATIVES = 60, 6, 4
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class WordEmbSkip(nn.Module):
    def __init__(self, nwords: int, emb_size: int) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(nwords, emb_size, sparse=True)
        self.context_embedding = nn.Embedding(nwords, emb_size, sparse=True)
        nn.init.xavier_uniform_(self.word_embedding.weight)
        nn.init.zeros_(self.context_embedding.weight)

    def forward(self, word: torch.Tensor, context: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        w = self.word_embedding(word)
        positive = (w * self.context_embedding(context)).sum(dim=1)
        negative = torch.einsum("bd,bnd->bn", w, self.context_embedding(negatives))
        return -(F.logsigmoid(positive).mean() + F.logsigmoid(-negative).mean())


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(9)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(10)
    model = WordEmbSkip(WORDS, 12)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=2e-2)
    per_topic = WORDS // TOPICS

    def step(i: int) -> None:
        topic = torch.randint(0, TOPICS, (64,), generator=generator)
        word = topic * per_topic + torch.randint(0, per_topic, (64,), generator=generator)
        context = topic * per_topic + torch.randint(0, per_topic, (64,), generator=generator)
        negatives = torch.randint(0, WORDS, (64, NEGATIVES), generator=generator)
        loss = model(word, context, negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
