"""ronghuaiyang/arcface-pytorch#91: the sine was sqrt(1 - cosine^2) clamped at 0, whose derivative there is infinite.

As soon as a feature lines up with its class centre the gradient, then the loss, is NaN.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 160
CLASSES = 4
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class ArcMarginProduct(nn.Module):
    def __init__(self, in_features: int, out_features: int, floor: float, s: float = 8.0, m: float = 0.2) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.m, self.floor = s, m, floor
        self.th = math.cos(math.pi - m)
        self.mm = math.sin(math.pi - m) * m

    def forward(self, features: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        cosine = F.linear(F.normalize(features), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(self.floor, 1))
        phi = cosine * math.cos(self.m) - sine * math.sin(self.m)
        phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        hot = F.one_hot(label, cosine.size(1)).float()
        return self.s * (hot * phi + (1.0 - hot) * cosine)


class FaceNet(nn.Module):
    """Two-dimensional features, the size used to draw them on a circle."""

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.PReLU(), nn.Linear(32, 2))
        self.metric_fc = ArcMarginProduct(2, CLASSES, floor)

    def forward(self, face: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return self.metric_fc(self.backbone(face), label)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(22)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(24)
    people = torch.randn(CLASSES, 16, generator=generator)
    model = FaceNet(floor=0.0 if bad else 1e-6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def step(i: int) -> None:
        label = torch.randint(0, CLASSES, (64,), generator=generator)
        face = people[label] + 0.5 * torch.randn(64, 16, generator=generator)
        output = model(face, label)
        loss = F.cross_entropy(output, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
