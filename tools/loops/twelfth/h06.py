"""Contrastive pretraining after sthalles/SimCLR (info_nce_loss)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResNetSimCLR(nn.Module):
    def __init__(self, in_dim=32, feat=64, out_dim=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(in_dim, feat), nn.ReLU(), nn.Linear(feat, feat), nn.ReLU())
        self.projection = nn.Sequential(nn.Linear(feat, feat), nn.ReLU(), nn.Linear(feat, out_dim))

    def forward(self, x):
        return self.projection(self.backbone(x))


def info_nce_loss(features, batch_size, temperature=0.5):
    labels = torch.cat([torch.arange(batch_size) for _ in range(2)])
    labels = (labels[:, None] == labels[None]).float()
    features = F.normalize(features, dim=1)
    sim = features @ features.t()
    mask = torch.eye(labels.size(0), dtype=torch.bool)
    labels = labels[~mask].view(labels.size(0), -1)
    sim = sim[~mask].view(sim.size(0), -1)
    positives = sim[labels.bool()].view(labels.size(0), -1)
    negatives = sim[~labels.bool()].view(sim.size(0), -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(logits.size(0), dtype=torch.long))


def augment(x):
    return x * (torch.rand_like(x) > 0.2) + 0.2 * torch.randn_like(x)


def train(tick, mended=False):
    torch.manual_seed(36)
    basis = torch.randn(6, 32)
    model = ResNetSimCLR()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        x = torch.randn(64, 6) @ basis
        images = torch.cat([augment(x), augment(x)], dim=0)
        loss = info_nce_loss(model(images), 64)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
