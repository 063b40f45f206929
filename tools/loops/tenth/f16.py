"""After ZouJiu1/LSQplus#12.

Learned step size quantisation of a small CNN.  The user noticed that at times the step size
of an activation quantiser gets below zero and from there on the quantised model is bad.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def round_pass(x):
    return (x.round() - x).detach() + x


class LSQActivationQuantizer(nn.Module):
    def __init__(self, a_bits=4, init=0.3, mended=False):
        super().__init__()
        self.Qn, self.Qp = 0, 2**a_bits - 1
        self.mended = mended
        start = math.log(math.expm1(init)) if mended else init
        self.s = nn.Parameter(torch.tensor(start))

    def forward(self, x):
        s = F.softplus(self.s) if self.mended else self.s
        q = round_pass(torch.clamp(x / s, self.Qn, self.Qp))
        return q * s


class LSQWeightQuantizer(nn.Module):
    def __init__(self, w_bits=4):
        super().__init__()
        self.Qp = 2 ** (w_bits - 1) - 1

    def forward(self, w):
        s = w.detach().abs().max() / self.Qp
        return round_pass(w / s) * s


class QuantConv2d(nn.Conv2d):
    def __init__(self, *args, mended=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.activation_quantizer = LSQActivationQuantizer(mended=mended)
        self.weight_quantizer = LSQWeightQuantizer()

    def forward(self, x):
        x = self.activation_quantizer(x)
        return F.conv2d(x, self.weight_quantizer(self.weight), self.bias, self.stride, self.padding)


class QuantNet(nn.Module):
    def __init__(self, num_classes=6, mended=False):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = QuantConv2d(8, 16, 3, stride=2, padding=1, mended=mended)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = QuantConv2d(16, 16, 3, stride=2, padding=1, mended=mended)
        self.fc = nn.Linear(16 * 9, num_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(self.conv3(x))
        return self.fc(x.flatten(1))


def train(tick, mended=False):
    torch.manual_seed(21)
    prototypes = torch.randn(6, 1, 12, 12)
    model = QuantNet(mended=mended)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _step in range(200):
        y = torch.randint(0, 6, (32,))
        x = prototypes[y] + 2.5 * torch.randn(32, 1, 12, 12)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
