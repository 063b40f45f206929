"""sraashis/easytorch#38: vessel segmentation with a dice loss; the longer it trains the fewer vessel pixels are
found, at the end none."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.seq = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.seq(x)


class UNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.C1 = DoubleConv(1, base)
        self.C2 = DoubleConv(base, base * 2)
        self.up = nn.ConvTranspose2d(base * 2, base, 2, 2)
        self.C3 = DoubleConv(base * 2, base)
        self.out = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        c1 = self.C1(x)
        c2 = self.C2(F.max_pool2d(c1, 2))
        return self.out(self.C3(torch.cat([self.up(c2), c1], 1)))


def dice_loss(outputs, target, beta=1, eps=1e-5, complement=True):
    dice = 0.0
    one_hot = F.one_hot(target, outputs.shape[1]).permute(0, 3, 1, 2).float()
    for c in range(1, outputs.shape[1]):
        o, t = outputs[:, c], one_hot[:, c]
        tp = (o * t).sum()
        dice = dice + (1 + beta**2) * tp / (o.sum() + beta**2 * t.sum() + eps)
    score = dice / (outputs.shape[1] - 1)
    return 1 - score if complement else score


def fundus(n, gen):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    ang, off = torch.rand(n, 1, 1, generator=gen) * 3.14, torch.rand(n, 1, 1, generator=gen) * 6 - 3
    dist = ((xx - 8) * ang.sin() - (yy - 8) * ang.cos() + off + torch.sin(0.5 * xx)).abs()
    mask = (dist < 1.2).long()
    img = 0.5 - 0.35 * mask + 0.15 * torch.randn(n, 16, 16, generator=gen)
    return img[:, None], mask


def train(tick, mended=False):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    images, masks = fundus(128, gen)
    nn_unet = UNet()
    optimizer = torch.optim.Adam(nn_unet.parameters(), lr=1e-3)
    tick.model(nn_unet)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(8):
        for idx in torch.randperm(128, generator=gen).split(8):
            out = F.softmax(nn_unet(images[idx]), 1)
            loss = dice_loss(out, masks[idx], complement=mended)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    with torch.no_grad():
        hard = nn_unet(images).argmax(1)
    train.final = (2 * (hard * masks).sum() / (hard.sum() + masks.sum())).item()
    return losses
