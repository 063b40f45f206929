"""winycg/HCGNet#2: train accuracy about 50% while test accuracy is 90%."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class SMGBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(c_out)
        self.gate = nn.Conv2d(c_out, c_out, 1)

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x)))
        return h * torch.sigmoid(self.gate(h.mean((2, 3), keepdim=True)))


class HCGNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stage1, self.stage2 = SMGBlock(3, 16), SMGBlock(16, 24)
        self.fc = nn.Linear(24 * 4, classes)

    def forward(self, x):
        h = F.adaptive_avg_pool2d(self.stage2(F.max_pool2d(self.stage1(x), 2)), 2)
        return self.fc(h.flatten(1))


def build(bad: bool):
    torch.manual_seed(40)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(40)
    net = HCGNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    protos = torch.randn(10, 3, 8, 8, generator=gen)

    def step(i):
        y = torch.randint(0, 10, (64,), generator=gen)
        x = protos[y] + 0.5 * torch.randn(64, 3, 8, 8, generator=gen)
        lam = torch.distributions.Beta(1.0, 1.0).sample().item()
        perm = torch.randperm(64, generator=gen)
        out = net(lam * x + (1 - lam) * x[perm])
        loss = lam * criterion(out, y) + (1 - lam) * criterion(out, y[perm])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        LOG.append(loss.item())

    return net, optimizer, step
