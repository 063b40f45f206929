"""After qubvel-org/segmentation_models.pytorch#611: "Threshold for Dice loss".

Binary lesion segmentation with a small U-Net and a Dice loss that takes a
threshold, activation and beta.
"""

import torch
import torch.nn.functional as F
from torch import nn


def _threshold(x, threshold=None):
    if threshold is not None:
        return torch.tensor((x > threshold).type(x.dtype).tolist(), requires_grad=True)
    return x


def f_score(pr, gt, beta=1, eps=1e-7, threshold=None):
    pr = _threshold(pr, threshold=threshold)
    tp = torch.sum(gt * pr)
    fp = torch.sum(pr) - tp
    fn = torch.sum(gt) - tp
    return ((1 + beta**2) * tp + eps) / ((1 + beta**2) * tp + beta**2 * fn + fp + eps)


class DiceLoss(nn.Module):
    def __init__(self, eps=1.0, beta=1.0, threshold=None):
        super().__init__()
        self.eps, self.beta, self.threshold = eps, beta, threshold

    def forward(self, y_pr, y_gt):
        return 1 - f_score(torch.sigmoid(y_pr), y_gt, self.beta, self.eps, self.threshold)


class Unet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.encoder1 = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU())
        self.encoder2 = nn.Sequential(nn.Conv2d(c, 2 * c, 3, 2, 1), nn.BatchNorm2d(2 * c), nn.ReLU())
        self.decoder = nn.Sequential(nn.Conv2d(3 * c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU())
        self.segmentation_head = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x):
        e1 = self.encoder1(x)
        e2 = self.encoder2(e1)
        return self.segmentation_head(self.decoder(torch.cat([F.interpolate(e2, scale_factor=2), e1], 1)))


def batch(n):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    c, r = 3 + 10 * torch.rand(n, 2, 1, 1), 2 + 2.5 * torch.rand(n, 1, 1)
    mask = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 < r**2).float()[:, None]
    return mask * 1.0 + 0.5 * torch.randn(n, 1, 16, 16), mask


def train(tick, mended=False):
    torch.manual_seed(0)
    model = Unet()
    criterion = DiceLoss(threshold=None if mended else 0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(120):
        x, y = batch(12)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
