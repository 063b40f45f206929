"""Healthy: tiny losses. A displacement field in metres with values of some micrometres; the mean squared error
starts at about 1e-11 and falls by orders of magnitude with Adam and a small learning rate on a small output
scale.
"""

import torch
import torch.nn as nn


class BeamNet(nn.Module):
    def __init__(self, hidden=40, scale=1e-5):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.scale = scale

    def forward(self, p):
        return self.scale * self.net(p)


def beams(n):
    x = torch.rand(n, 1)
    load = torch.rand(n, 1)
    stiff = 0.5 + torch.rand(n, 1)
    w = 1.2e-5 * load * x**2 * (6 - 4 * x + x**2) / 3 / stiff
    return torch.cat([x, load, stiff], 1), w


def train(tick, mended=False):
    torch.manual_seed(5)
    model = BeamNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, eps=1e-20)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(300):
        p, w = beams(128)
        loss = nn.functional.mse_loss(model(p), w)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, p, w)
    with torch.no_grad():
        p, w = beams(1000)
        return history, 1 - ((model(p) - w) ** 2).mean().item() / w.var().item()


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
