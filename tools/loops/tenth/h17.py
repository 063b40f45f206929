"""After kamenbliznashki/normalizing_flows (RealNVP): the negative log-likelihood of a thin
two-dimensional density falls below zero; scale layers start as the identity."""

import math

import torch
import torch.nn as nn


class LinearMaskedCoupling(nn.Module):
    def __init__(self, input_size, hidden_size, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s_net = nn.Sequential(nn.Linear(input_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, input_size))
        self.t_net = nn.Sequential(nn.Linear(input_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, input_size))
        for net in (self.s_net, self.t_net):
            nn.init.zeros_(net[-1].weight)
            nn.init.zeros_(net[-1].bias)

    def forward(self, x):
        mx = x * self.mask
        s = torch.tanh(self.s_net(mx)) * 2
        t = self.t_net(mx)
        u = mx + (1 - self.mask) * (x - t) * torch.exp(-s)
        return u, (-(1 - self.mask) * s).sum(1)


class RealNVP(nn.Module):
    def __init__(self, n_blocks=6, hidden_size=32):
        super().__init__()
        mask = torch.tensor([1.0, 0.0])
        self.net = nn.ModuleList()
        for _ in range(n_blocks):
            self.net.append(LinearMaskedCoupling(2, hidden_size, mask))
            mask = 1 - mask

    def log_prob(self, x):
        total = 0
        for layer in self.net:
            x, ld = layer(x)
            total = total + ld
        return -0.5 * (x**2).sum(1) - math.log(2 * math.pi) + total


def moons(n):
    top = torch.rand(n) < 0.5
    a = math.pi * torch.rand(n)
    x = torch.where(top, a.cos(), 1 - a.cos())
    y = torch.where(top, a.sin(), 0.5 - a.sin())
    return 0.3 * (torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2))


def train(tick, mended=False):
    torch.manual_seed(1)
    model = RealNVP()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _i in range(200):
        loss = -model.log_prob(moons(128)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
