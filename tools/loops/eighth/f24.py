"""itakurah/focal-loss-pytorch#5: binary focal loss for a rare finding in little scans; the score of the model never
goes under one half, and the findings and the healthy ones are hardly told apart."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=0.25, reduction="mean", use_logits=False):
        super().__init__()
        self.gamma, self.alpha, self.reduction = gamma, alpha, reduction
        self.use_logits = use_logits

    def forward(self, inputs, targets):
        probs = torch.sigmoid(inputs)
        bce_loss = F.binary_cross_entropy_with_logits(inputs if self.use_logits else probs, targets, reduction="none")
        p_t = probs * targets + (1 - probs) * (1 - targets)
        alpha_t = self.alpha * targets + (1 - self.alpha) * (1 - targets)
        loss = alpha_t * (1 - p_t) ** self.gamma * bce_loss
        return loss.mean() if self.reduction == "mean" else loss.sum()


class ScanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.fc = nn.Linear(16, 1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc(x.amax((2, 3))).squeeze(1)


def scans(n, gen):
    x = 0.5 * torch.randn(n, 1, 12, 12, generator=gen)
    y = (torch.rand(n, generator=gen) < 0.15).float()
    r, c = torch.randint(1, 10, (n,), generator=gen), torch.randint(1, 10, (n,), generator=gen)
    for i in range(n):
        rr, cc = r[i].item(), c[i].item()
        x[i, 0, rr - 1 : rr + 2, cc] += 1.0
        if y[i] > 0:
            x[i, 0, rr, cc - 1 : cc + 2] += 1.1
    return x, y


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    x, y = scans(900, gen)
    model = ScanNet()
    criterion = FocalLoss(use_logits=mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(10):
        for idx in torch.randperm(len(x), generator=gen).split(36):
            loss = criterion(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        pred = (model(x) > 0).float()
    recall, spec = (pred * y).sum() / y.sum(), ((1 - pred) * (1 - y)).sum() / (1 - y).sum()
    train.final = (recall.item(), spec.item())
    return losses
