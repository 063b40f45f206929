"""calad0i/HGQ2#13: a quantised classifier whose kernels get no gradient at all; only a bias at the end moves."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class FixedPointQuantizer(nn.Module):
    def __init__(self, i0, f0):
        super().__init__()
        self.i0, self.f0 = i0, f0

    def forward(self, x):
        scale = 2.0**self.f0
        limit = 2.0**self.i0
        inside = (x.abs() < limit).float()
        q = torch.clamp(torch.round(x * scale) / scale, -limit, limit - 1 / scale)
        return q.detach() + (x - x.detach()) * inside


class QDense(nn.Module):
    def __init__(self, in_features, out_features, f0):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        bound = (6.0 / (in_features + out_features)) ** 0.5
        nn.init.uniform_(self.kernel, -bound, bound)
        self.kq = FixedPointQuantizer(1, f0)
        self.iq = FixedPointQuantizer(3, 4)

    def forward(self, x):
        return self.iq(x) @ self.kq(self.kernel) + self.bias


class QClassifier(nn.Module):
    def __init__(self, features=64, classes=5, f0=0):
        super().__init__()
        self.dense1 = QDense(features, 48, f0)
        self.dense2 = QDense(48, 32, f0)
        self.dense3 = QDense(32, classes, f0)

    def forward(self, x):
        x = F.relu(self.dense1(x))
        x = F.relu(self.dense2(x))
        return self.dense3(x)


def jets(n, centres):
    y = torch.randint(0, len(centres), (n,))
    return centres[y] + torch.randn(n, centres.shape[1]), y


def train(tick, mended=False):
    torch.manual_seed(0)
    centres = 0.6 * torch.randn(5, 64)
    x, y = jets(1000, centres)
    model = QClassifier(f0=4 if mended else 0)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    tick.model(model)
    tick.optimizer(opt)
    losses = []
    for _epoch in range(6):
        for idx in torch.randperm(len(x)).split(40):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        train.final = (model(x).argmax(1) == y).float().mean().item()
    return losses
