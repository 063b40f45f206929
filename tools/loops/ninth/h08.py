"""Healthy. After kuangliu/pytorch-retinanet: focal loss over many anchors of which
hardly any is positive, a prior bias of -log((1-pi)/pi), frozen batch-norm layers.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class RetinaNet(nn.Module):
    num_anchors = 2

    def __init__(self, num_classes=2, c=16):
        super().__init__()
        self.fpn = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU())
        self.loc_head = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, self.num_anchors * 4, 3, padding=1)
        )
        self.cls_head = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, self.num_anchors * num_classes, 3, padding=1)
        )
        nn.init.constant_(self.cls_head[-1].bias, -math.log((1 - 0.01) / 0.01))

    def forward(self, x):
        f = self.fpn(x)
        return self.loc_head(f), self.cls_head(f)

    def freeze_bn(self):
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()


def focal_loss(x, t, alpha=0.25, gamma=2.0):
    p = x.sigmoid()
    pt = p * t + (1 - p) * (1 - t)
    w = (alpha * t + (1 - alpha) * (1 - t)) * (1 - pt).pow(gamma)
    return F.binary_cross_entropy_with_logits(x, t, w.detach(), reduction="sum")


def batch(n):
    x = 0.3 * torch.randn(n, 3, 16, 16)
    cls = torch.zeros(n, 4, 16, 16)
    loc = torch.zeros(n, 8, 16, 16)
    pos = torch.zeros(n, 1, 16, 16)
    for i in range(n):
        a, b = torch.randint(2, 14, (2,)).tolist()
        c, k = torch.randint(0, 2, (2,)).tolist()
        x[i, c, a - 1 : a + 2, b - 1 - k : b + 2 + k] += 2
        cls[i, 2 * k + c, a, b] = 1
        loc[i, :, a, b] = 0.5 * k + 0.25
        pos[i, 0, a, b] = 1
    return x, cls, loc, pos


def train(tick, mended=False):
    torch.manual_seed(0)
    net = RetinaNet()
    net.train()
    net.freeze_bn()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(180):
        x, cls, loc, pos = batch(8)
        optimizer.zero_grad()
        loc_preds, cls_preds = net(x)
        num_pos = pos.sum()
        loc_loss = F.smooth_l1_loss(loc_preds * pos, loc * pos, reduction="sum")
        loss = (loc_loss + focal_loss(cls_preds, cls)) / num_pos
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
