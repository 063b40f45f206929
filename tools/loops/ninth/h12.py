"""Healthy. After rosinality/glow-pytorch: ActNorm initialised from the first batch,
zero-initialised coupling ends, negative log-likelihood that falls below zero.
"""

import math

import torch
from torch import nn


class ActNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(d))
        self.scale = nn.Parameter(torch.ones(d))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.initialized.item() == 0:
            with torch.no_grad():
                self.loc.copy_(-x.mean(0))
                self.scale.copy_(1 / (x.std(0) + 1e-6))
            self.initialized.fill_(1)
        return self.scale * (x + self.loc), self.scale.abs().log().sum()


class ZeroLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Linear(i, o)
        self.conv.weight.data.zero_()
        self.conv.bias.data.zero_()
        self.scale = nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return self.conv(x) * torch.exp(self.scale * 3)


class Flow(nn.Module):
    def __init__(self, d, hidden=48):
        super().__init__()
        self.actnorm = ActNorm(d)
        self.invconv = nn.Parameter(torch.linalg.qr(torch.randn(d, d))[0])
        self.net = nn.Sequential(
            nn.Linear(d // 2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), ZeroLinear(hidden, d)
        )

    def forward(self, x):
        x, det1 = self.actnorm(x)
        x = x @ self.invconv
        a, b = x.chunk(2, 1)
        log_s, t = self.net(a).chunk(2, 1)
        s = torch.sigmoid(log_s + 2)
        return torch.cat([a, (b + t) * s], 1), det1 + torch.linalg.slogdet(self.invconv)[1] + s.log().sum(1)


class Glow(nn.Module):
    def __init__(self, d=6, n_flow=5):
        super().__init__()
        self.blocks = nn.ModuleList(Flow(d) for _ in range(n_flow))

    def forward(self, x):
        logdet = 0
        for b in self.blocks:
            x, det = b(x)
            logdet = logdet + det
        return -(logdet - 0.5 * (x**2 + math.log(2 * math.pi)).sum(1)).mean()


def train(tick, mended=False):
    torch.manual_seed(0)
    mix = torch.randn(2, 6)
    model = Glow()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with torch.no_grad():
        z = torch.randn(256, 2)
        model(torch.tanh(z @ mix) * 0.3 + 0.02 * torch.randn(256, 6))
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(200):
        z = torch.randn(128, 2)
        loss = model(torch.tanh(z @ mix) * 0.3 + 0.02 * torch.randn(128, 6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
