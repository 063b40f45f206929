"""Healthy: label smoothing of 0.3 over ten classes and mixup: the training loss cannot go below about 1.2 and
looks stuck there, while the accuracy on clean data is high.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CENTRES = torch.randn(10, 24, generator=torch.Generator().manual_seed(88)) * 1.4


class KeywordNet(nn.Module):
    def __init__(self, n_mfcc=24, n_classes=10):
        super().__init__()
        self.fc1 = nn.Linear(n_mfcc, 64)
        self.norm = nn.LayerNorm(64)
        self.dropout = nn.Dropout(0.3)
        self.fc2 = nn.Linear(64, 48)
        self.classifier = nn.Linear(48, n_classes)

    def forward(self, x):
        x = self.dropout(F.relu(self.norm(self.fc1(x))))
        x = F.relu(self.fc2(x))
        return self.classifier(x)


def keywords(n):
    y = torch.randint(0, 10, (n,))
    return CENTRES[y] + torch.randn(n, 24), y


def train(tick, mended=False):
    torch.manual_seed(8)
    model = KeywordNet()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(250):
        x, y = keywords(64)
        lam = float(torch.distributions.Beta(0.4, 0.4).sample())
        perm = torch.randperm(len(x))
        mixed = lam * x + (1 - lam) * x[perm]
        logits = model(mixed)
        loss = lam * criterion(logits, y) + (1 - lam) * criterion(logits, y[perm])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, mixed, y)
    model.eval()
    with torch.no_grad():
        x, y = keywords(1000)
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
