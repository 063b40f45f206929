"""After kuangliu/pytorch-cifar.

Batch-normalised residual net with lr 0.1, momentum 0.9 and weight decay from the
very first step, cosine annealing to zero.
"""

import torch
import torch.nn.functional as F
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, 2)
        self.linear = nn.Linear(16, num_classes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer2(self.layer1(out))
        return self.linear(F.adaptive_avg_pool2d(out, 1).flatten(1))


def random_crop_flip(x, pad=1):
    i, j = torch.randint(0, 2 * pad + 1, (2,)).tolist()
    x = F.pad(x, (pad,) * 4)[:, :, i : i + 10, j : j + 10]
    return x.flip(-1) if torch.rand(()) < 0.5 else x


def train(tick, mended=False):
    torch.manual_seed(0)
    proto = F.interpolate(torch.randn(10, 3, 4, 4), size=10)
    targets = torch.arange(400) % 10
    images = proto[targets] + 0.6 * torch.randn(400, 3, 10, 10)
    net = ResNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
    tick.model(net)
    tick.optimizer(optimizer)
    net.train()
    losses = []
    for epoch in range(9):
        for rows in torch.randperm(400).split(32):
            optimizer.zero_grad()
            loss = criterion(net(random_crop_flip(images[rows])), targets[rows])
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
        scheduler.step()
    return losses
