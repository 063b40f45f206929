"""Healthy. After NVIDIA/DeepLearningExamples: dynamic loss scaling that starts far too
high, so the first steps overflow and are skipped; gradients of two micro-batches add up.
"""

import torch
import torch.nn.functional as F
from torch import nn


class BertEncoderLite(nn.Module):
    def __init__(self, vocab=30, dim=24):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.1, batch_first=True)
        self.pooler = nn.Linear(dim, dim)
        self.classifier = nn.Linear(dim, 3)

    def forward(self, ids):
        h = self.layer(self.embeddings(ids))
        return self.classifier(torch.tanh(self.pooler(h.mean(1))))


class DynamicLossScaler:
    def __init__(self, init_scale=2.0**132, window=60):
        self.cur_scale, self.good, self.window = init_scale, 0, window

    def has_overflow(self, params):
        return any(not torch.isfinite(p.grad).all() for p in params)

    def update_scale(self, overflow):
        if overflow:
            self.cur_scale, self.good = max(self.cur_scale / 4, 1), 0
        else:
            self.good += 1
            if self.good % self.window == 0:
                self.cur_scale *= 2


def train(tick, mended=False):
    torch.manual_seed(0)
    model = BertEncoderLite()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler, accumulation = DynamicLossScaler(), 2
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(130):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(accumulation):
            y = torch.randint(0, 3, (16,))
            ids = torch.randint(0, 30, (16, 10))
            ids[:, :3] = y[:, None] * 10 + torch.randint(0, 10, (16, 3))
            loss = F.cross_entropy(model(ids), y) / accumulation
            (loss * scaler.cur_scale).backward()
            total = total + loss.detach()
        params = list(model.parameters())
        overflow = scaler.has_overflow(params)
        if not overflow:
            for p in params:
                p.grad.div_(scaler.cur_scale)
            nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
        scaler.update_scale(overflow)
        losses.append(total.item())
        tick.step(total)
    return losses
