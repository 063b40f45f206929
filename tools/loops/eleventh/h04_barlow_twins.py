"""After facebookresearch/barlowtwins.

Cross-correlation of two views pushed to the identity; the loss is a sum over a
large matrix and starts very high. LARS with separate rates for weights and biases.
"""

import torch
from torch import nn


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay=0.0, momentum=0.9, eta=0.02):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, eta=eta))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if dp is None:
                    continue
                if p.ndim != 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    pn, un = p.norm(), dp.norm()
                    q = torch.where((pn > 0) & (un > 0), g["eta"] * pn / un, torch.ones(()))
                    dp = dp.mul(q)
                st = self.state[p]
                mu = st.setdefault("mu", torch.zeros_like(p))
                mu.mul_(g["momentum"]).add_(dp)
                p.add_(mu, alpha=-g["lr"])


def off_diagonal(x):
    n = x.size(0)
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class BarlowTwins(nn.Module):
    def __init__(self, batch_size, dim=24, sizes=(64, 128, 128), lambd=0.0051):
        super().__init__()
        self.batch_size, self.lambd = batch_size, lambd
        self.backbone = nn.Sequential(
            nn.Linear(dim, sizes[0]), nn.BatchNorm1d(sizes[0]), nn.ReLU(), nn.Linear(sizes[0], sizes[0]), nn.ReLU()
        )
        layers = []
        for i in range(len(sizes) - 2):
            layers += [nn.Linear(sizes[i], sizes[i + 1], bias=False), nn.BatchNorm1d(sizes[i + 1]), nn.ReLU()]
        layers.append(nn.Linear(sizes[-2], sizes[-1], bias=False))
        self.projector = nn.Sequential(*layers)
        self.bn = nn.BatchNorm1d(sizes[-1], affine=False)

    def forward(self, y1, y2):
        z1, z2 = self.projector(self.backbone(y1)), self.projector(self.backbone(y2))
        c = self.bn(z1).t() @ self.bn(z2) / self.batch_size
        on_diag = torch.diagonal(c).add(-1).pow(2).sum()
        return on_diag + self.lambd * off_diagonal(c).pow(2).sum()


def train(tick, mended=False):
    torch.manual_seed(0)
    mix = torch.randn(40, 24)
    model = BarlowTwins(128)
    weights = [p for p in model.parameters() if p.ndim != 1]
    biases = [p for p in model.parameters() if p.ndim == 1]
    optimizer = LARS([{"params": weights, "lr": 0.3}, {"params": biases, "lr": 0.0048}], lr=0, weight_decay=1e-6)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        x = torch.tanh(torch.randn(128, 40) @ mix * 0.3)
        y1, y2 = x + 0.6 * torch.randn_like(x), x + 0.6 * torch.randn_like(x)
        optimizer.zero_grad()
        loss = model(y1, y2)
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
