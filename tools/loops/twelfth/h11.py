"""Self-supervision without negatives after lucidrains/byol-pytorch."""

import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


def MLP(dim, projection, hidden=64):
    return nn.Sequential(nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, projection))


class NetWrapper(nn.Module):
    def __init__(self, in_dim=24, feat=48, proj=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(in_dim, feat), nn.BatchNorm1d(feat), nn.ReLU(), nn.Linear(feat, feat))
        self.projector = MLP(feat, proj)

    def forward(self, x):
        return self.projector(self.net(x))


def loss_fn(x, y):
    return 2 - 2 * (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)


class BYOL(nn.Module):
    def __init__(self, moving_average_decay=0.97):
        super().__init__()
        self.online_encoder = NetWrapper()
        self.online_predictor = MLP(24, 24)
        self.target_encoder = copy.deepcopy(self.online_encoder)
        for p in self.target_encoder.parameters():
            p.requires_grad = False
        self.decay = moving_average_decay

    def update_moving_average(self):
        for o, t in zip(self.online_encoder.parameters(), self.target_encoder.parameters()):
            t.data = t.data * self.decay + o.data * (1 - self.decay)

    def forward(self, one, two):
        p1 = self.online_predictor(self.online_encoder(one))
        p2 = self.online_predictor(self.online_encoder(two))
        with torch.no_grad():
            t1, t2 = self.target_encoder(one), self.target_encoder(two)
        return (loss_fn(p1, t2) + loss_fn(p2, t1)).mean()


def train(tick, mended=False):
    torch.manual_seed(41)
    basis = torch.randn(5, 24)
    learner = BYOL()
    opt = torch.optim.Adam([p for p in learner.parameters() if p.requires_grad], lr=2e-3)
    tick.model(learner)
    tick.optimizer(opt)
    losses = []
    for step in range(250):
        x = torch.randn(64, 5) @ basis
        one, two = x + 0.4 * torch.randn_like(x), x + 0.4 * torch.randn_like(x)
        loss = learner(one, two)
        opt.zero_grad()
        loss.backward()
        opt.step()
        learner.update_moving_average()
        tick.step(loss)
        losses.append(loss.item())
    return losses
