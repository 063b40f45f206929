"""RealNVP density estimation after kamenbliznashki/normalizing_flows."""

import math
import torch
import torch.nn as nn


class LinearMaskedCoupling(nn.Module):
    def __init__(self, dim, hidden, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s_net = nn.Sequential(
            nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, dim)
        )
        self.t_net = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, dim)
        )

    def forward(self, x):
        mx = x * self.mask
        s, t = self.s_net(mx), self.t_net(mx)
        u = mx + (1 - self.mask) * (x - t) * torch.exp(-s)
        return u, (-(1 - self.mask) * s).sum(1)


class RealNVP(nn.Module):
    def __init__(self, n_blocks=4, dim=4, hidden=32):
        super().__init__()
        mask = torch.arange(dim).float() % 2
        self.net = nn.ModuleList()
        for _ in range(n_blocks):
            self.net.append(LinearMaskedCoupling(dim, hidden, mask))
            mask = 1 - mask

    def log_prob(self, x):
        total = 0
        for layer in self.net:
            x, ld = layer(x)
            total = total + ld
        return (-0.5 * x**2 - 0.5 * math.log(2 * math.pi)).sum(1) + total


def power_data(n):
    z = torch.randn(n, 1)
    return torch.cat([0.3 * z, 0.1 * z**2, 0.2 * z.sin(), 0.3 * z], 1) + 0.03 * torch.randn(n, 4)


def train(tick, mended=False):
    torch.manual_seed(40)
    model = RealNVP()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(300):
        x = power_data(128)
        loss = -model.log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
