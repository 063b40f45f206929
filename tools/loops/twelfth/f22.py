"""After xingyizhou/CenterNet#928: a re-organised CenterNet trained on someone's own dataset.

The loss becomes huge after the first passes and then does not change any more.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DLABackbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.level0 = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU())
        self.level1 = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.level2 = nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())

    def forward(self, x):
        return self.level2(self.level1(self.level0(x)))


class CenterNet(nn.Module):
    def __init__(self, num_classes=2):
        super().__init__()
        self.backbone = DLABackbone()
        self.hm = nn.Conv2d(32, num_classes, 1)
        self.wh = nn.Conv2d(32, 2, 1)
        self.hm.bias.data.fill_(-2.19)

    def forward(self, x):
        f = self.backbone(x)
        return {"hm": torch.sigmoid(self.hm(f)).clamp(1e-4, 1 - 1e-4), "wh": self.wh(f)}


def neg_loss(pred, gt):
    pos_inds = gt.eq(1).float()
    neg_inds = gt.lt(1).float()
    pos_loss = torch.log(pred) * (1 - pred) ** 2 * pos_inds
    neg_loss_ = torch.log(1 - pred) * pred**2 * (1 - gt) ** 4 * neg_inds
    num_pos = pos_inds.sum().clamp(min=1)
    return -(pos_loss.sum() + neg_loss_.sum()) / num_pos


class CtdetLoss(nn.Module):
    def __init__(self, wh_weight=0.1):
        super().__init__()
        self.wh_weight = wh_weight

    def forward(self, output, batch):
        hm_loss = neg_loss(output["hm"], batch["hm"])
        mask = batch["hm"].eq(1).any(1, keepdim=True).float()
        wh_loss = (F.l1_loss(output["wh"], batch["wh"], reduction="none") * mask).sum() / mask.sum()
        return hm_loss + self.wh_weight * wh_loss


def make_batch(n, size=32):
    img = 0.1 * torch.randn(n, 3, size, size)
    hm, wh = torch.zeros(n, 2, 8, 8), torch.zeros(n, 2, 8, 8)
    for i in range(n):
        y, x = torch.randint(1, 7, (2,)).tolist()
        c = i % 2
        r = 3 + c
        img[i, c, max(0, y * 4 + 2 - r) : y * 4 + 2 + r, max(0, x * 4 + 2 - r) : x * 4 + 2 + r] += 1
        hm[i, c, y - 1 : y + 2, x - 1 : x + 2] = 0.4
        hm[i, c, y, x] = 1
        wh[i, :, y, x] = 2.0 * r / 4
    return {"input": img, "hm": hm, "wh": wh}


def train(tick, mended=False):
    torch.manual_seed(21)
    model = CenterNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = CtdetLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        batch = make_batch(16)
        output = model(batch["input"])
        loss = criterion(output, batch)
        loss.backward()
        optimizer.step()
        if mended:
            optimizer.zero_grad()
        tick.step(loss)
        losses.append(loss.item())
    return losses
