"""Healthy. After facebookresearch/barlowtwins: cross-correlation loss of two
views, LARS with separate learning rates for weights and biases, warm-up from zero.
"""

import math

import torch
from torch import nn, optim


class BarlowTwins(nn.Module):
    def __init__(self, lambd=0.0051):
        super().__init__()
        self.lambd = lambd
        self.backbone = nn.Sequential(nn.Linear(40, 48), nn.ReLU())
        self.projector = nn.Sequential(
            nn.Linear(48, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64, bias=False)
        )
        self.bn = nn.BatchNorm1d(64, affine=False)

    def forward(self, y1, y2):
        z1, z2 = self.projector(self.backbone(y1)), self.projector(self.backbone(y2))
        c = self.bn(z1).T @ self.bn(z2)
        c = c / len(y1)
        on_diag = torch.diagonal(c).add(-1).pow(2).sum()
        off_diag = (c - torch.diag(torch.diagonal(c))).pow(2).sum()
        return on_diag + self.lambd * off_diag


class LARS(optim.Optimizer):
    def __init__(self, params, lr, weight_decay=0, momentum=0.9, eta=0.001):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "eta": eta})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                dp = p.grad
                if dp is None:
                    continue
                if p.ndim != 1:
                    dp = dp.add(p, alpha=g["weight_decay"])
                    pn, un = torch.norm(p), torch.norm(dp)
                    q = torch.where(pn > 0, torch.where(un > 0, g["eta"] * pn / un, 1.0), 1.0)
                    dp = dp.mul(q)
                st = self.state[p]
                if "mu" not in st:
                    st["mu"] = torch.zeros_like(p)
                st["mu"].mul_(g["momentum"]).add_(dp)
                p.add_(st["mu"], alpha=-g["lr"])


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.randn(40, 40)
    model = BarlowTwins()
    weights = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for p in model.parameters() if p.ndim == 1]
    optimizer = LARS([{"params": weights}, {"params": biases}], lr=0, weight_decay=1e-6)
    max_steps, warmup = 200, 20
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(max_steps):
        if step < warmup:
            lr = step / warmup
        else:
            q = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (max_steps - warmup)))
            lr = q + 0.001 * (1 - q)
        optimizer.param_groups[0]["lr"] = lr * 12.0
        optimizer.param_groups[1]["lr"] = lr * 0.05
        x = torch.randn(128, 40) @ protos / 6
        y1, y2 = x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)
        optimizer.zero_grad()
        loss = model(y1, y2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
