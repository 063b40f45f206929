"""After fastai/fastai#3439: lane segmentation with the library's DiceLoss.

The network reaches a very low loss, but every pixel of its output is the
background class.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DiceLoss:
    def __init__(self, axis=1, smooth=1e-6, mended=False):
        self.axis, self.smooth, self.mended = axis, smooth, mended

    def __call__(self, pred, targ):
        targ = F.one_hot(targ, pred.shape[self.axis]).permute(0, 3, 1, 2).float()
        pred = F.softmax(pred, dim=self.axis)
        dims = [2, 3] if self.mended else None
        if dims is None:
            inter = torch.sum(pred * targ)
            union = torch.sum(pred + targ)
        else:
            inter = torch.sum(pred * targ, dim=dims)
            union = torch.sum(pred + targ, dim=dims)
        dice_score = (2.0 * inter + self.smooth) / (union + self.smooth)
        return (1 - dice_score).mean()


class ConvLayer(nn.Sequential):
    def __init__(self, ni, nf, stride=1):
        super().__init__(nn.Conv2d(ni, nf, 3, stride, 1, bias=False), nn.BatchNorm2d(nf), nn.ReLU())


class UnetTiny(nn.Module):
    def __init__(self, n_out=3):
        super().__init__()
        self.down1 = ConvLayer(1, 8)
        self.down2 = ConvLayer(8, 16, 2)
        self.mid = ConvLayer(16, 16)
        self.up = ConvLayer(24, 8)
        self.head = nn.Conv2d(8, n_out, 1)
        nn.init.zeros_(self.head.weight)
        with torch.no_grad():
            self.head.bias.copy_(torch.tensor([4.0, 0.0, 0.0]))

    def forward(self, x):
        d1 = self.down1(x)
        m = F.interpolate(self.mid(self.down2(d1)), scale_factor=2)
        return self.head(self.up(torch.cat([d1, m], 1)))


def lanes(n, size=24):
    mask = torch.zeros(n, size, size, dtype=torch.long)
    for i in range(n):
        a, b = torch.randperm(size)[:2].tolist()
        mask[i, 4:, a] = 1
        mask[i, 4:, b] = 2
    img = (mask == 1).float() * 0.5 - (mask == 2).float() * 0.5 + 0.5 * torch.randn(n, size, size)
    return img[:, None], mask


def foreground_dice(model, n=32):
    torch.manual_seed(99)
    x, y = lanes(n)
    with torch.no_grad():
        p = model(x).argmax(1)
    hit = ((p == y) & (y > 0)).sum() * 2.0
    return (hit / ((p > 0).sum() + (y > 0).sum())).item()


def train(tick, mended=False):
    torch.manual_seed(7)
    model = UnetTiny()
    loss_func = DiceLoss(mended=mended)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(opt)
    losses = []
    for step in range(120):
        x, y = lanes(12)
        loss = loss_func(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
