"""After lukasruff/Deep-SVDD-PyTorch.

One-class training: features pulled to a fixed centre, no biases, no targets; the
loss goes to almost nothing.
"""

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class LeNet(nn.Module):
    def __init__(self, rep_dim=12):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, bias=False, padding=2)
        self.bn2d1 = nn.BatchNorm2d(6, eps=1e-4, affine=False)
        self.conv2 = nn.Conv2d(6, 8, 5, bias=False, padding=2)
        self.bn2d2 = nn.BatchNorm2d(8, eps=1e-4, affine=False)
        self.fc1 = nn.Linear(8 * 9, rep_dim, bias=False)

    def forward(self, x):
        x = F.max_pool2d(F.leaky_relu(self.bn2d1(self.conv1(x))), 2)
        x = F.max_pool2d(F.leaky_relu(self.bn2d2(self.conv2(x))), 2)
        return self.fc1(x.flatten(1))


@torch.no_grad()
def init_center_c(net, data, eps=0.1):
    net.eval()
    c = net(data).mean(0)
    c[(c.abs() < eps) & (c < 0)] = -eps
    c[(c.abs() < eps) & (c >= 0)] = eps
    return c


def normal_images(n):
    base = torch.linspace(-1, 1, 12)
    phase = torch.rand(n, 1, 1, 1) * 0.4
    return torch.sin(3 * base.view(1, 1, 12, 1) + phase) * torch.ones(1, 1, 1, 12) + 0.1 * torch.randn(n, 1, 12, 12)


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    x = normal_images(256)
    net = LeNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=5e-7)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[10], gamma=0.1)
    c = init_center_c(net, x)
    tick.model(net)
    tick.optimizer(optimizer)
    net.train()
    losses = []
    for epoch in range(15):
        for inputs in x[torch.randperm(len(x))].split(32):
            optimizer.zero_grad()
            dist = ((net(inputs) - c) ** 2).sum(1)
            loss = dist.mean()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
        scheduler.step()
    net.eval()
    with torch.no_grad():
        good = ((net(normal_images(64)) - c) ** 2).sum(1).mean()
        bad = ((net(torch.randn(64, 1, 12, 12)) - c) ** 2).sum(1).mean()
    LAST = (good.item(), bad.item())
    return losses
