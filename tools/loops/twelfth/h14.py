"""Multi-task regression weighted by learned uncertainty after median-research-group/LibMTL (weighting/UW.py)."""

import torch
import torch.nn as nn


class MultiTaskNet(nn.Module):
    def __init__(self, q=6, nb_features=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(q, nb_features), nn.ReLU(), nn.Linear(nb_features, nb_features), nn.ReLU())
        self.head1 = nn.Linear(nb_features, 1)
        self.head2 = nn.Linear(nb_features, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.head1(h), self.head2(h)


class UW(nn.Module):
    def __init__(self, net, task_num=2):
        super().__init__()
        self.net = net
        self.loss_scale = nn.Parameter(torch.tensor([-0.5] * task_num))

    def forward(self, x, ys):
        losses = torch.stack([nn.functional.mse_loss(p, y) for p, y in zip(self.net(x), ys)])
        return (losses / (2 * self.loss_scale.exp()) + self.loss_scale / 2).sum()


def gen_data(n):
    x = torch.rand(n, 6) * 2 - 1
    y1 = 2 * x[:, :1] * x[:, 1:2] + 0.3 * x[:, 2:3] + 0.05 * torch.randn(n, 1)
    y2 = 0.1 * torch.sin(3 * x[:, 3:4]) + 0.02 * torch.randn(n, 1)
    return x, (y1, y2)


def train(tick, mended=False):
    torch.manual_seed(44)
    model = UW(MultiTaskNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(300):
        x, ys = gen_data(64)
        loss = model(x, ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
