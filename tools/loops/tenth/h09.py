"""After huggingface/pytorch-image-models (CosineLRScheduler with cycles, SGDR): the rate
goes back to a high value at each restart and the loss leaps up there."""

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = nn.Conv2d(inplanes, planes, 1, stride, bias=False)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, num_classes=8):
        super().__init__()
        self.layer1 = BasicBlock(1, 8, 1)
        self.layer2 = BasicBlock(8, 12, 2)
        self.fc = nn.Linear(12, num_classes)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


def train(tick, mended=False):
    torch.manual_seed(42)
    filters = torch.randn(8, 1, 3, 3)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8, momentum=0.9, nesterov=True)
    lr_scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=20, T_mult=2, eta_min=1e-5)
    criterion = nn.CrossEntropyLoss()
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _update in range(140):
        y = torch.randint(0, 8, (24,))
        base = torch.randn(1, 24, 10, 10)
        x = torch.conv2d(base, filters[y], padding=1, groups=24).transpose(0, 1)
        loss = criterion(model(x / 3), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lr_scheduler.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
