"""After sthalles/SimCLR.

Contrastive training, cross entropy over logits whose label is always zero, low
temperature, cosine schedule.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ResNetSimCLR(nn.Module):
    def __init__(self, out_dim=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.fc = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, out_dim))

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


def info_nce_loss(features, batch_size, n_views=2, temperature=0.07):
    labels = torch.cat([torch.arange(batch_size) for _ in range(n_views)])
    labels = (labels[None] == labels[:, None]).float()
    features = F.normalize(features, dim=1)
    sim = features @ features.t()
    mask = torch.eye(len(labels), dtype=torch.bool)
    labels = labels[~mask].view(len(labels), -1)
    sim = sim[~mask].view(len(sim), -1)
    positives = sim[labels.bool()].view(len(labels), -1)
    negatives = sim[~labels.bool()].view(len(sim), -1)
    logits = torch.cat([positives, negatives], 1)
    return logits / temperature, torch.zeros(len(logits), dtype=torch.long)


def two_views(images):
    out = []
    for _ in range(2):
        shift = int(torch.randint(-1, 2, ()))
        v = images.roll(shift, -1) * (0.7 + 0.6 * torch.rand(len(images), 1, 1, 1))
        out.append(v + 0.2 * torch.randn_like(v))
    return torch.cat(out)


def train(tick, mended=False):
    torch.manual_seed(0)
    images = F.interpolate(torch.randn(256, 1, 5, 5), size=10)
    model = ResNetSimCLR()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=120, eta_min=0)
    criterion = nn.CrossEntropyLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for n_iter in range(120):
        rows = torch.randperm(len(images))[:32]
        logits, labels = info_nce_loss(model(two_views(images[rows])), 32)
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
