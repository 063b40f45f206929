"""itayhubara/BinaryNet.pytorch: weights and activations of plus and minus one; the real-valued copies are put
back before the step and clamped after it, most never change their sign."""

import torch
import torch.nn as nn


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, g):
        return g


class BinarizeLinear(nn.Linear):
    def __init__(self, i, o, first=False):
        super().__init__(i, o)
        self.first = first

    def forward(self, x):
        if not self.first:
            x = Binarize.apply(x)
        if not hasattr(self.weight, "org"):
            self.weight.org = self.weight.data.clone()
        self.weight.data = Binarize.apply(self.weight.org)
        return nn.functional.linear(x, self.weight, self.bias)


class Net(nn.Module):
    def __init__(self, infl=2):
        super().__init__()
        self.fc1 = BinarizeLinear(64, 64 * infl, first=True)
        self.bn1, self.htanh1 = nn.BatchNorm1d(64 * infl), nn.Hardtanh()
        self.fc2 = BinarizeLinear(64 * infl, 64 * infl)
        self.bn2, self.htanh2 = nn.BatchNorm1d(64 * infl), nn.Hardtanh()
        self.fc3 = nn.Linear(64 * infl, 5)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x = self.htanh1(self.bn1(self.fc1(x)))
        x = self.htanh2(self.bn2(self.drop(self.fc2(x))))
        return self.fc3(x)


def train(tick, mended=False):
    torch.manual_seed(0)
    centres = torch.randn(5, 64)
    y = torch.randint(0, 5, (1000,))
    x = centres[y] + 2.2 * torch.randn(1000, 64)
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(7):
        for idx in torch.randperm(1000).split(50):
            optimizer.zero_grad()
            loss = criterion(model(x[idx]), y[idx])
            loss.backward()
            for p in model.parameters():
                if hasattr(p, "org"):
                    p.data.copy_(p.org)
            optimizer.step()
            for p in model.parameters():
                if hasattr(p, "org"):
                    p.org.copy_(p.data.clamp_(-1, 1))
            losses.append(loss.item())
            tick.step(loss)
    model.eval()
    with torch.no_grad():
        train.final = (model(x).argmax(1) == y).float().mean().item()
    return losses
