"""VincentStimper/normalizing-flows#27: maximum likelihood through forward_and_log_det; the reported loss falls
without end, yet the samples of the flow do not look like the data."""

import math

import torch
import torch.nn as nn


class AffineCoupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip, self.half = flip, dim // 2
        self.param_map = nn.Sequential(
            nn.Linear(self.half, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, 2 * self.half),
        )
        nn.init.zeros_(self.param_map[-1].weight)
        nn.init.zeros_(self.param_map[-1].bias)

    def parts(self, x):
        a, b = x.chunk(2, 1)
        return (b, a) if self.flip else (a, b)

    def join(self, a, b):
        return torch.cat((b, a) if self.flip else (a, b), 1)

    def forward(self, z):
        a, b = self.parts(z)
        shift, scale = self.param_map(a).chunk(2, 1)
        scale = 1.5 * torch.tanh(scale)
        return self.join(a, b * scale.exp() + shift), scale.sum(1)

    def inverse(self, x):
        a, b = self.parts(x)
        shift, scale = self.param_map(a).chunk(2, 1)
        scale = 1.5 * torch.tanh(scale)
        return self.join(a, (b - shift) * (-scale).exp()), -scale.sum(1)


class NormalizingFlow(nn.Module):
    def __init__(self, dim=2, layers=6, hidden=32, log_det_sign=1):
        super().__init__()
        self.flows = nn.ModuleList([AffineCoupling(dim, hidden, i % 2 == 1) for i in range(layers)])
        self.log_det_sign = log_det_sign

    def forward_and_log_det(self, x):
        log_det = torch.zeros(len(x))
        for flow in self.flows:
            x, log_d = flow(x)
            log_det = log_det + self.log_det_sign * log_d
        return x, log_det

    def log_prob(self, x):
        z, log_det = self.forward_and_log_det(x)
        base = -0.5 * (z**2).sum(1) - math.log(2 * math.pi)
        return base + log_det

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, 2)
        for flow in reversed(self.flows):
            z, _ = flow.inverse(z)
        return z


def two_moons(n):
    t = torch.rand(n) * math.pi
    side = torch.randint(0, 2, (n,)).float()
    x = torch.stack([torch.cos(t) * (1 - 2 * side) + side, torch.sin(t) * (1 - 2 * side) + 0.5 * side], 1)
    return (x - torch.tensor([0.5, 0.25])) * 1.5 + 0.08 * torch.randn(n, 2)


def train(tick, mended=False):
    torch.manual_seed(0)
    model = NormalizingFlow(log_det_sign=1 if mended else -1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _it in range(300):
        optimizer.zero_grad()
        loss = -model.log_prob(two_moons(128)).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    samples, real = model.sample(400), two_moons(400)
    train.final = torch.cdist(samples, real).min(1).values.median().item()
    return losses
