"""Gradient accumulation after huggingface/accelerate (examples/by_feature/gradient_accumulation.py)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SentencePairClassifier(nn.Module):
    def __init__(self, vocab=20, dim=24):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.encoder = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))
        self.pooler = nn.Linear(4 * dim, 48)
        self.classifier = nn.Linear(48, 2)

    def sentence(self, ids):
        h = self.embeddings(ids)
        return (h + self.encoder(h)).mean(1)

    def forward(self, a, b):
        u, v = self.sentence(a), self.sentence(b)
        return self.classifier(torch.tanh(self.pooler(torch.cat([u, v, (u - v).abs(), u * v], -1))))


def pairs(n):
    topic = torch.randint(0, 4, (n, 2))
    same = torch.rand(n) < 0.5
    topic[same, 1] = topic[same, 0]
    a = topic[:, :1] * 5 + torch.randint(0, 5, (n, 6))
    b = topic[:, 1:] * 5 + torch.randint(0, 5, (n, 6))
    return a, b, (topic[:, 0] == topic[:, 1]).long()


def train(tick, mended=False):
    torch.manual_seed(39)
    model = SentencePairClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    gradient_accumulation_steps = 8
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    optimizer.zero_grad()
    for step in range(1, 8 * 100 + 1):
        a, b, y = pairs(4)
        loss = F.cross_entropy(model(a, b), y) / gradient_accumulation_steps
        loss.backward()
        if step % gradient_accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            tick.step(loss)
            losses.append(loss.item())
    return losses
