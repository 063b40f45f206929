"""yhenon/pytorch-retinanet#50: output layers are filled with zeros and the class bias with -log((1 - 0.01) / 0.01)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class SubModel(nn.Module):
    def __init__(self, c, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(c, 24, 3, padding=1)
        self.output = nn.Conv2d(24, outputs, 3, padding=1)

    def forward(self, x):
        return self.output(F.relu(self.conv1(x)))


class RetinaNet(nn.Module):
    def __init__(self, classes=3, prior=0.01):
        super().__init__()
        self.fpn = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.regressionModel, self.classificationModel = SubModel(16, 2), SubModel(16, classes)
        self.classificationModel.output.weight.data.fill_(0)
        self.classificationModel.output.bias.data.fill_(-math.log((1.0 - prior) / prior))
        self.regressionModel.output.weight.data.fill_(0)
        self.regressionModel.output.bias.data.fill_(0)

    def forward(self, img):
        f = self.fpn(img)
        return self.classificationModel(f), self.regressionModel(f)


def build(bad: bool):
    torch.manual_seed(45)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(45)
    net = RetinaNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    def step(i):
        img = 0.1 * torch.randn(16, 3, 16, 16, generator=gen)
        cls_t, reg_t, pos = torch.zeros(16, 3, 8, 8), torch.zeros(16, 2, 8, 8), torch.zeros(16, 8, 8)
        for b in range(16):
            y, x, c = (int(torch.randint(0, k, (1,), generator=gen)) for k in (14, 14, 3))
            img[b, c, y : y + 3, x : x + 3] += 1.0
            gy, gx = (y + 1) // 2, (x + 1) // 2
            cls_t[b, c, gy, gx] = 1
            pos[b, gy, gx] = 1
            reg_t[b, :, gy, gx] = torch.tensor([(y + 1) % 2, (x + 1) % 2]) - 0.5
        logits, reg = net(img)
        p = logits.sigmoid()
        pt = torch.where(cls_t == 1, p, 1 - p)
        alpha = torch.where(cls_t == 1, 0.25, 0.75)
        bce = F.binary_cross_entropy_with_logits(logits, cls_t, reduction="none")
        cls_loss = (alpha * (1 - pt) ** 2 * bce).sum() / pos.sum()
        reg_loss = (F.smooth_l1_loss(reg, reg_t, reduction="none") * pos[:, None]).sum() / pos.sum()
        loss = cls_loss + reg_loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        LOG.append(loss.item())

    return net, optimizer, step
