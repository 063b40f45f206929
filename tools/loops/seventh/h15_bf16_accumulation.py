"""Healthy: CPU autocast in bfloat16 with gradient accumulation over four micro-batches; the parameters change in
every fourth call only, gradients grow in between, losses carry the coarse bfloat16 noise and are divided by
four.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectrogramNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(24)
        self.proj = nn.Linear(24 * 8, 48)
        self.out = nn.Linear(48, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = x.mean(3).flatten(1)
        return self.out(F.relu(self.proj(x)))


def calls(n):
    y = torch.randint(0, 6, (n,))
    f = torch.arange(16).float()[:, None]
    t = torch.arange(12).float()
    centre = 3 + 2 * (y % 3).float()[:, None, None] * 2 + (y // 3).float()[:, None, None] * 0.4 * t
    x = torch.exp(-(((f - centre) / 1.5) ** 2)) + 0.4 * torch.randn(n, 16, 12)
    return x[:, None], y


def train(tick, mended=False):
    torch.manual_seed(15)
    model = SpectrogramNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    accumulate = 4
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    optimizer.zero_grad()
    for step in range(240):
        x, y = calls(12)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits.float(), y) / accumulate
        loss.backward()
        if (step + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        history.append(loss.item())
        tick.step(loss, x, y)
    model.eval()
    with torch.no_grad():
        x, y = calls(500)
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
