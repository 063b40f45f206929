"""After facebookincubator/flowtorch#100.

Story: an invertible flow will not fit simple toy distributions; the negative log
likelihood runs away below zero while the samples look nothing like the data.
"""

import math

import torch
from torch import nn


class ElementwiseKnots(nn.Module):
    """Monotone map, mixture of a line and squashing steps, applied per dimension."""

    def __init__(self, hidden, k=4):
        super().__init__()
        self.k = k
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 3 * k + 2))
        nn.init.normal_(self.net[-1].weight, std=0.01)

    def forward(self, x, context):
        p = self.net(context)
        slope, shift = p[:, 0].exp(), p[:, 1]
        height, width, loc = p[:, 2:].view(-1, 3, self.k).unbind(1)
        height, width = nn.functional.softplus(height), nn.functional.softplus(width) + 0.3
        s = torch.tanh((x[:, None] - loc) / width)
        y = slope * x + shift + (height * s).sum(1)
        dydx = slope + (height / width * (1 - s * s)).sum(1)
        return y, dydx.log()


class CouplingSpline(nn.Module):
    def __init__(self, hidden=24, swap=False, sign=1.0):
        super().__init__()
        self.knots = ElementwiseKnots(hidden)
        self.swap = swap
        self.sign = sign

    def inverse(self, y):
        a, b = (y[:, 1], y[:, 0]) if self.swap else (y[:, 0], y[:, 1])
        b, log_det = self.knots(b, a[:, None])
        x = torch.stack((b, a) if self.swap else (a, b), 1)
        return x, self.sign * log_det


class Flow(nn.Module):
    def __init__(self, n_layers=4, sign=1.0):
        super().__init__()
        self.bijectors = nn.ModuleList([CouplingSpline(swap=i % 2 == 1, sign=sign) for i in range(n_layers)])

    def log_prob(self, y):
        total = 0.0
        for bijector in self.bijectors:
            y, log_det = bijector.inverse(y)
            total = total + log_det
        base = -0.5 * (y**2).sum(1) - math.log(2 * math.pi)
        return base + total


def two_moons(n):
    t = torch.rand(n) * math.pi
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, t.cos(), 1 - t.cos()) - 0.5
    y = torch.where(upper, t.sin(), 0.5 - t.sin()) - 0.25
    return 1.5 * torch.stack([x, y], 1) + 0.08 * torch.randn(n, 2)


def train(tick, mended=False):
    torch.manual_seed(0)
    flow = Flow(sign=1.0 if mended else -1.0)
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3)
    tick.model(flow)
    tick.optimizer(optimizer)
    losses = []
    for step in range(250):
        loss = -flow.log_prob(two_moons(256)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
