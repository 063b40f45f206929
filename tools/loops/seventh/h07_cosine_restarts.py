"""Healthy: cosine annealing with warm restarts on ECG-like beats; the learning rate falls to nearly zero three
times and jumps back, with a bump of the loss at every restart.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class BeatNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 12, 7, padding=3)
        self.bn1 = nn.BatchNorm1d(12)
        self.conv2 = nn.Conv1d(12, 24, 5, padding=2)
        self.bn2 = nn.BatchNorm1d(24)
        self.fc = nn.Linear(24 * 4, classes)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 4)
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(F.adaptive_avg_pool1d(x, 4).flatten(1))


def beats(n, L=64):
    y = torch.randint(0, 4, (n,))
    t = torch.arange(L).float()
    centre = 32 + 3 * torch.randn(n, 1)
    width = torch.tensor([2.0, 5.0, 2.0, 5.0])[y][:, None]
    sign = torch.tensor([1.0, 1.0, -1.0, 1.0])[y][:, None]
    x = sign * torch.exp(-(((t - centre) / width) ** 2))
    second = (y == 3).float()[:, None]
    x = x + second * 0.8 * torch.exp(-(((t - centre - 14) / 2) ** 2))
    return (x + 0.25 * torch.randn(n, L))[:, None], y


def train(tick, mended=False):
    torch.manual_seed(7)
    model = BeatNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=60, eta_min=0.0)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(240):
        x, y = beats(32)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    model.eval()
    with torch.no_grad():
        x, y = beats(500)
        return history, (model(x).argmax(1) == y).float().mean().item()


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
