"""loshchil/SGDR: cosine annealing with warm restarts; at each restart the rate leaps to 0.3 and the loss
leaps with it, then falls lower than before."""

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


class WideBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(cin), nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(cout), nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(cin, cout, 1, bias=False)

    def forward(self, x):
        h = self.conv1(torch.relu(self.bn1(x)))
        return self.shortcut(x) + self.conv2(torch.relu(self.bn2(h)))


class WideResNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.block1 = WideBlock(8, 12)
        self.block2 = WideBlock(12, 16)
        self.bn = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.block2(nn.functional.avg_pool2d(self.block1(self.stem(x)), 2))
        return self.fc(torch.relu(self.bn(x)).mean((2, 3)))


def make_data(n, prototypes):
    y = torch.randint(0, len(prototypes), (n,))
    return prototypes[y] + 2.2 * torch.randn(n, 1, 8, 8), y


def train(tick, mended=False):
    torch.manual_seed(4)
    prototypes = torch.randn(5, 1, 8, 8)
    x, y = make_data(480, prototypes)
    xt, yt = make_data(300, prototypes)
    net = WideResNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=30, T_mult=2)
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for _step in range(210):
        idx = torch.randint(0, len(x), (24,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
        scheduler.step()
    net.eval()
    with torch.no_grad():
        train.final = (net(xt).argmax(1) == yt).float().mean().item()
    return losses
