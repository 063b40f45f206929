"""Healthy. After locuslab/deq: the equilibrium is solved without a graph, one more
application of the layer is re-attached and its gradient is corrected by a second solve.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ResNetLayer(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.lin1 = nn.Linear(dim, inner)
        self.lin2 = nn.Linear(inner, dim)
        self.norm = nn.LayerNorm(dim)
        nn.init.normal_(self.lin1.weight, std=0.05)
        nn.init.normal_(self.lin2.weight, std=0.05)

    def forward(self, z, x):
        return self.norm(0.5 * z + x + self.lin2(torch.tanh(self.lin1(z))))


class DEQFixedPoint(nn.Module):
    def __init__(self, f, max_iter=15):
        super().__init__()
        self.f, self.max_iter = f, max_iter

    def solve(self, g, z):
        for _ in range(self.max_iter):
            z = g(z)
        return z

    def forward(self, x):
        with torch.no_grad():
            z = self.solve(lambda z: self.f(z, x), torch.zeros_like(x))
        z = self.f(z, x)
        if z.requires_grad:
            z0 = z.clone().detach().requires_grad_()
            f0 = self.f(z0, x)

            def backward_hook(grad):
                return self.solve(
                    lambda y: torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + grad, torch.zeros_like(grad)
                )

            z.register_hook(backward_hook)
        return z


class DEQModel(nn.Module):
    def __init__(self, dim=24, n_class=5):
        super().__init__()
        self.inject = nn.Linear(16, dim)
        self.deq = DEQFixedPoint(ResNetLayer(dim, 32))
        self.out = nn.Linear(dim, n_class)

    def forward(self, x):
        return self.out(self.deq(self.inject(x)))


def train(tick, mended=False):
    torch.manual_seed(0)
    w1, w2 = torch.randn(16, 20) / 4, torch.randn(20, 5)
    model = DEQModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(150):
        x = torch.randn(64, 16)
        y = (torch.tanh(2 * x @ w1) @ w2).argmax(1)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
