"""Gofinge/CheXpert_Baseline_PyTorch#5: chest X-ray DenseNet baseline, low training accuracy on the five findings."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class DenseLayer(nn.Module):
    def __init__(self, c_in, growth, drop_rate):
        super().__init__()
        self.norm = nn.BatchNorm2d(c_in)
        self.conv = nn.Conv2d(c_in, growth, 3, padding=1, bias=False)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x):
        return torch.cat([x, self.drop(self.conv(F.relu(self.norm(x))))], 1)


class DenseNet(nn.Module):
    def __init__(self, num_classes=5, growth=8, drop_rate=0.1):
        super().__init__()
        self.conv0 = nn.Conv2d(1, 8, 3, padding=1)
        self.denseblock1 = nn.Sequential(DenseLayer(8, growth, drop_rate), DenseLayer(16, growth, drop_rate))
        self.norm5 = nn.BatchNorm2d(24)
        self.dropout = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(24 * 4, num_classes)

    def forward(self, x):
        h = self.denseblock1(F.avg_pool2d(self.conv0(x), 2))
        h = F.adaptive_avg_pool2d(F.relu(self.norm5(h)), 2).flatten(1)
        return self.classifier(self.dropout(h))


def build(bad: bool):
    torch.manual_seed(19)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(19)
    model = DenseNet(drop_rate=0.9 if bad else 0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    patterns = torch.randn(5, 1, 12, 12, generator=gen)

    def step(i):
        model.train()
        labels = (torch.rand(32, 5, generator=gen) > 0.5).float()
        image = torch.einsum("bk,kchw->bchw", labels - 0.5, patterns) + 0.3 * torch.randn(32, 1, 12, 12, generator=gen)
        loss = F.binary_cross_entropy_with_logits(model(image), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
