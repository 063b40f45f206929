"""Healthy: three tasks weighted by learned log variances (Kendall's weighting); the total goes below zero, the
weights move by themselves, and one task has targets for a fifth of the rows only.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiTask(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.depth_head = nn.Linear(hidden, 1)
        self.normal_head = nn.Linear(hidden, 2)
        self.class_head = nn.Linear(hidden, 3)
        self.log_vars = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.shared(x)
        return self.depth_head(h).squeeze(1), self.normal_head(h), self.class_head(h)


W = torch.randn(12, 6, generator=torch.Generator().manual_seed(19)) / 12**0.5


def scenes(n):
    x = torch.randn(n, 12)
    f = torch.tanh(x @ W)
    depth = 0.3 * f[:, 0] + 0.2 * f[:, 1] + 0.02 * torch.randn(n)
    normal = 0.5 * f[:, 1:3] + 0.02 * torch.randn(n, 2)
    label = f[:, 3:6].argmax(1)
    label[torch.rand(n) > 0.2] = -100
    return x, depth, normal, label


def train(tick, mended=False):
    torch.manual_seed(19)
    model = MultiTask()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        x, depth, normal, label = scenes(128)
        d, n, c = model(x)
        losses = torch.stack([F.mse_loss(d, depth), F.mse_loss(n, normal), F.cross_entropy(c, label)])
        loss = (torch.exp(-model.log_vars) * losses + 0.5 * model.log_vars).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, depth)
    with torch.no_grad():
        x, depth, normal, label = scenes(1000)
        return history, 1 - ((model(x)[0] - depth) ** 2).mean().item() / depth.var().item()


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
