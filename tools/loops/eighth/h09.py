"""timgaripov/swa: after a warm phase the rate is held constant and high while an average of the weights is
kept; the raw loss jumps about, the average is what counts."""

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, update_bn


class VGGSmall(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def schedule(step, start, lr_init, swa_lr):
    t = step / start
    ratio = swa_lr / lr_init
    if t <= 0.5:
        return lr_init
    if t <= 0.9:
        return lr_init * (1.0 - (1.0 - ratio) * (t - 0.5) / 0.4)
    return swa_lr


def make_set(n, proto):
    y = torch.randint(0, len(proto), (n,))
    return proto[y] + 1.3 * torch.randn(n, 1, 8, 8), y


def train(tick, mended=False):
    torch.manual_seed(2)
    proto = torch.randn(4, 1, 8, 8)
    x, y = make_set(600, proto)
    xt, yt = make_set(300, proto)
    model = VGGSmall()
    swa_model = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    tick.model(model)
    tick.optimizer(optimizer)
    losses, total, start = [], 200, 100
    for step in range(total):
        lr = schedule(step, start, 0.1, 0.06)
        for group in optimizer.param_groups:
            group["lr"] = lr
        idx = torch.randint(0, 600, (20,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
        if step >= start and step % 10 == 0:
            swa_model.update_parameters(model)
    update_bn(x.split(100), swa_model)
    swa_model.eval()
    with torch.no_grad():
        train.final = (swa_model(xt).argmax(1) == yt).float().mean().item()
    return losses
