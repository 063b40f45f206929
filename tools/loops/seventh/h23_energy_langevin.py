"""Healthy: an energy-based model trained by contrastive divergence with short Langevin chains and a replay
buffer. The loss is the difference of two energies: it hovers around zero and hardly falls.
"""

import torch
import torch.nn as nn


class Energy(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1) + 0.05 * x.pow(2).sum(1)


MODES = torch.tensor([[1.5, 1.5], [-1.5, -1.5], [1.5, -1.5]])


def data(n):
    return MODES[torch.randint(0, 3, (n,))] + 0.25 * torch.randn(n, 2)


def langevin(energy, x, steps=15, step_size=0.05):
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        (grad,) = torch.autograd.grad(energy(x).sum(), x)
        x = x - step_size * grad + (2 * step_size) ** 0.5 * torch.randn_like(x)
    return x.detach().clamp(-4, 4)


def train(tick, mended=False):
    torch.manual_seed(23)
    energy = Energy()
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3, betas=(0.0, 0.999))
    buffer = torch.randn(512, 2) * 2
    tick.model(energy)
    tick.optimizer(optimizer)
    history = []
    for _step in range(250):
        pos = data(64)
        pick = torch.randint(0, len(buffer), (64,))
        start = buffer[pick]
        fresh = torch.rand(64) < 0.05
        start[fresh] = torch.randn(int(fresh.sum()), 2) * 2
        neg = langevin(energy, start)
        buffer[pick] = neg
        ep, en = energy(pos), energy(neg)
        loss = ep.mean() - en.mean() + 0.1 * (ep**2 + en**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, pos, None)
    with torch.no_grad():
        grid = torch.rand(2000, 2) * 6 - 3
        return history, (energy(grid).mean() - energy(data(2000)).mean()).item()


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
