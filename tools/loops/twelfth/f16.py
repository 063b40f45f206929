"""After jinnnju/PaAno#1: patch embeddings for anomaly detection in time series.

A reader asks whether he misreads the triplet part of the trainer; the
embeddings are no better than those of the untrained encoder.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchEncoder(nn.Module):
    def __init__(self, patch=32, dim=16):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 7, padding=3)
        self.norm1 = nn.InstanceNorm1d(16, affine=True)
        self.conv2 = nn.Conv1d(16, 16, 5, padding=2)
        self.fc = nn.Linear(16, 32)
        self.projection = nn.Linear(32, dim)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x[:, None])))
        h = F.relu(self.conv2(h)).mean(-1)
        return F.normalize(self.projection(F.relu(self.fc(h))), dim=-1)


def triplet_loss(anchors, positives, margin=0.5, mended=False):
    sims = anchors @ positives.t()
    pos_sims = sims.diagonal()
    negatives = sims.clone()
    negatives.diagonal().fill_(float("inf") if mended else -float("inf"))
    neg_dists = 1 - negatives
    hard_neg_dists, _ = torch.max(neg_dists, dim=1)
    pos_dists = 1 - pos_sims
    return F.relu(pos_dists - hard_neg_dists + margin).mean()


def patches(n, patch=32):
    t = torch.arange(patch).float()
    freq = torch.tensor([0.2, 0.45, 0.9, 1.6])[torch.randint(0, 4, (n,))][:, None]
    phase = torch.rand(n, 1) * 6.28
    x = torch.sin(freq * t + phase) + 0.1 * torch.randn(n, patch)
    y = torch.sin(freq * (t + 2) + phase) + 0.1 * torch.randn(n, patch)
    return x, y, freq.squeeze(1)


def quality(model):
    torch.manual_seed(77)
    x, y, f = patches(128)
    with torch.no_grad():
        s = model(x) @ model(y).t()
    same = f[:, None] == f[None]
    return (s[same].mean() - s[~same].mean()).item()


def train(tick, mended=False):
    torch.manual_seed(15)
    model = PatchEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        anchor, positive, _ = patches(64)
        loss = triplet_loss(model(anchor), model(positive), mended=mended)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
