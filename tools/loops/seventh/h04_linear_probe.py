"""Healthy: linear probing. The backbone is frozen on purpose, in eval mode, its features computed under no_grad;
only the head has gradients. Most parameters never change.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

PROTOS = torch.randn(12, 3, 12, 12, generator=torch.Generator().manual_seed(4))
PROTOS = F.avg_pool2d(PROTOS, 3, 1, 1) * 2


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()
        )
        self.layer2 = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()
        )

    def forward(self, x):
        return self.layer2(self.layer1(self.stem(x))).flatten(1)


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(32 * 9, n_classes)

    def forward(self, x):
        with torch.no_grad():
            feats = self.backbone(x)
        return self.head(feats)


def images(n, lo, hi):
    y = torch.randint(0, hi - lo, (n,))
    return PROTOS[lo + y] + 0.7 * torch.randn(n, 3, 12, 12), y


def pretrained_backbone():
    bb = Backbone()
    head = nn.Linear(32 * 9, 6)
    opt = torch.optim.Adam([*bb.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(50):
        x, y = images(32, 0, 6)
        loss = F.cross_entropy(head(bb(x)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return bb


def train(tick, mended=False):
    torch.manual_seed(4)
    backbone = pretrained_backbone()
    backbone.requires_grad_(False)
    backbone.eval()
    model = Classifier(backbone, 6)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.02, momentum=0.9)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(120):
        x, y = images(32, 6, 12)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    x, y = images(400, 6, 12)
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
