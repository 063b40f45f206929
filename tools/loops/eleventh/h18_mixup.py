"""After facebookresearch/mixup-cifar10.

Pairs of examples and labels blended by a Beta variable; the training loss keeps a
high floor and jumps about, the clean accuracy is good.
"""

import numpy as np
import torch
from torch import nn

LAST = None


class PreActBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.bn1, self.fc1 = nn.BatchNorm1d(d), nn.Linear(d, d, bias=False)
        self.bn2, self.fc2 = nn.BatchNorm1d(d), nn.Linear(d, d, bias=False)

    def forward(self, x):
        out = self.fc1(torch.relu(self.bn1(x)))
        return x + self.fc2(torch.relu(self.bn2(out)))


class PreActNet(nn.Module):
    def __init__(self, d_in, d=32, n=6):
        super().__init__()
        self.stem = nn.Linear(d_in, d)
        self.block1, self.block2 = PreActBlock(d), PreActBlock(d)
        self.linear = nn.Linear(d, n)

    def forward(self, x):
        return self.linear(self.block2(self.block1(self.stem(x))))


def mixup_data(x, y, alpha, rng):
    lam = float(rng.beta(alpha, alpha))
    index = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[index], y, y[index], lam


def mixup_criterion(criterion, pred, y_a, y_b, lam):
    return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)


def adjust_learning_rate(optimizer, epoch, base):
    lr = base
    if epoch >= 8:
        lr /= 10
    if epoch >= 11:
        lr /= 10
    for group in optimizer.param_groups:
        group["lr"] = lr


def train(tick, mended=False):
    global LAST
    torch.manual_seed(20170922)
    rng = np.random.RandomState(0)
    centre = 1.2 * torch.randn(6, 16)
    targets = torch.arange(600) % 6
    inputs = centre[targets] + torch.randn(600, 16)
    net = PreActNet(16)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(13):
        net.train()
        adjust_learning_rate(optimizer, epoch, 0.1)
        for rows in torch.randperm(600).split(50):
            x, y_a, y_b, lam = mixup_data(inputs[rows], targets[rows], 1.0, rng)
            loss = mixup_criterion(criterion, net(x), y_a, y_b, lam)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    net.eval()
    LAST = (net(inputs).argmax(1) == targets).float().mean().item()
    return losses
