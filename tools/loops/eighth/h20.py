"""sgugger (fastai 1cycle): super-convergence with a peak rate of 2.0, far over what plain SGD would bear, while
momentum goes the other way."""

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import OneCycleLR


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class ResNet9(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.prep = ConvBN(1, 8)
        self.layer1 = nn.Sequential(ConvBN(8, 16), nn.MaxPool2d(2))
        self.res1 = nn.Sequential(ConvBN(16, 16), ConvBN(16, 16))
        self.layer2 = nn.Sequential(ConvBN(16, 24), nn.MaxPool2d(2))
        self.linear = nn.Linear(24, classes, bias=False)

    def forward(self, x):
        x = self.layer1(self.prep(x))
        x = self.layer2(x + self.res1(x))
        return self.linear(x.amax((2, 3))) * 0.125


def batchify(n, proto):
    y = torch.randint(0, len(proto), (n,))
    return proto[y] + 1.5 * torch.randn(n, 1, 8, 8), y


def train(tick, mended=False):
    torch.manual_seed(0)
    proto = torch.randn(6, 1, 8, 8)
    x, y = batchify(900, proto)
    xt, yt = batchify(300, proto)
    model = ResNet9()
    total = 150
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.95, nesterov=True, weight_decay=5e-4)
    scheduler = OneCycleLR(
        optimizer, max_lr=2.0, total_steps=total, pct_start=0.3, base_momentum=0.85, max_momentum=0.95, div_factor=20
    )
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _step in range(total):
        idx = torch.randint(0, 900, (32,))
        xb, yb = x[idx], y[idx]
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        tick.step(loss)
    model.eval()
    with torch.no_grad():
        train.final = (model(xt).argmax(1) == yt).float().mean().item()
    return losses
