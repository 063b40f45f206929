"""Super-convergence with a very large learning rate after fastai/fastai (fit_one_cycle)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn_relu(ni, nf, stride):
    return nn.Sequential(nn.Conv2d(ni, nf, 3, stride, 1, bias=False), nn.BatchNorm2d(nf), nn.ReLU())


class XResNetTiny(nn.Module):
    def __init__(self, n_out=10):
        super().__init__()
        self.stem = conv_bn_relu(1, 16, 1)
        self.block1 = conv_bn_relu(16, 24, 2)
        self.block2 = conv_bn_relu(24, 32, 2)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, n_out))

    def forward(self, x):
        return self.head(self.block2(self.block1(self.stem(x))))


def items(n, protos):
    y = torch.randint(0, 10, (n,))
    return protos[y] + 0.8 * torch.randn(n, 1, 12, 12), y


def train(tick, mended=False):
    torch.manual_seed(47)
    protos = torch.randn(10, 1, 12, 12)
    model = XResNetTiny()
    steps = 150
    opt = torch.optim.SGD(model.parameters(), lr=0.04, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=1.0, total_steps=steps, pct_start=0.3, base_momentum=0.85, max_momentum=0.95
    )
    tick.model(model)
    tick.optimizer(opt)
    losses = []
    for step in range(steps):
        xb, yb = items(48, protos)
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
