"""After Gofinge/CheXpert_Baseline_PyTorch#5.

Chest X-ray multi-label baseline with DenseNet.  A reader asked about the rate given to the
dense layers.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class _DenseLayer(nn.Module):
    def __init__(self, num_input_features, growth_rate, drop_rate):
        super().__init__()
        self.norm = nn.BatchNorm2d(num_input_features)
        self.conv = nn.Conv2d(num_input_features, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = drop_rate

    def forward(self, x):
        new = self.conv(F.relu(self.norm(x)))
        new = F.dropout(new, p=self.drop_rate, training=self.training)
        return torch.cat([x, new], 1)


class DenseNet(nn.Module):
    def __init__(self, growth_rate=8, block_config=(2, 2), num_init=8, num_classes=5, drop_rate=0.0):
        super().__init__()
        self.conv0 = nn.Conv2d(1, num_init, 3, padding=1)
        blocks, ch = [], num_init
        for i, n in enumerate(block_config):
            for _ in range(n):
                blocks.append(_DenseLayer(ch, growth_rate, drop_rate))
                ch += growth_rate
            if i != len(block_config) - 1:
                blocks += [nn.Conv2d(ch, ch // 2, 1), nn.AvgPool2d(2)]
                ch //= 2
        self.features = nn.Sequential(*blocks)
        self.drop = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(ch, num_classes)

    def forward(self, x):
        h = F.relu(self.features(self.conv0(x)))
        return self.classifier(self.drop(h.amax((2, 3))))


def make_xrays(n, patterns, size=12):
    labels = (torch.rand(n, patterns.size(0)) < 0.4).float()
    img = 0.3 * torch.randn(n, 1, size, size)
    for i in range(n):
        for c in labels[i].nonzero().flatten().tolist():
            r, s = torch.randint(0, size - 4, (2,)).tolist()
            img[i, 0, r : r + 4, s : s + 4] += patterns[c]
    return img, labels


def train(tick, mended=False):
    torch.manual_seed(7)
    patterns = torch.randn(5, 4, 4)
    images, labels = make_xrays(256, patterns)
    model = DenseNet(drop_rate=0.1 if mended else 0.9)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _epoch in range(16):
        perm = torch.randperm(images.size(0))
        for idx in perm.split(32):
            loss = criterion(model(images[idx]), labels[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
