"""Noam schedule, warm-up from zero, after harvardnlp/annotated-transformer (copy task)."""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


class MultiHeadedAttention(nn.Module):
    def __init__(self, d, h=4):
        super().__init__()
        self.h, self.dk = h, d // h
        self.linears = nn.ModuleList([nn.Linear(d, d) for _ in range(4)])

    def forward(self, x, mask):
        n, t, d = x.shape
        q, k, v = [l(x).view(n, t, self.h, self.dk).transpose(1, 2) for l in self.linears[:3]]
        s = (q @ k.transpose(-2, -1) / math.sqrt(self.dk)).masked_fill(mask == 0, -1e9)
        return self.linears[3]((s.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))


class DecoderLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attn = MultiHeadedAttention(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, mask):
        x = x + self.attn(self.n1(x), mask)
        return x + self.ff(self.n2(x))


class Transformer(nn.Module):
    def __init__(self, vocab=11, d=32, length=9):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(0.5 * torch.randn(length, d))
        self.layers = nn.ModuleList([DecoderLayer(d) for _ in range(2)])
        self.norm = nn.LayerNorm(d)
        self.generator = nn.Linear(d, vocab)

    def forward(self, x):
        t = x.size(1)
        mask = torch.tril(torch.ones(t, t))
        h = self.embed(x) * math.sqrt(32) / 4 + self.pos[:t]
        for l in self.layers:
            h = l(h, mask)
        return self.generator(self.norm(h))


def rate(step, model_size=32, factor=1.0, warmup=100):
    if step == 0:
        return 0.0
    return factor * (model_size**-0.5 * min(step**-0.5, step * warmup**-1.5))


def train(tick, mended=False):
    torch.manual_seed(42)
    model = Transformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = LambdaLR(optimizer, lr_lambda=rate)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        first = torch.randint(1, 11, (48, 1))
        seq = torch.cat([(first - 1 + 3 * k) % 10 + 1 for k in range(9)], 1)
        logits = model(seq[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
