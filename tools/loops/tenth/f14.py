"""After avBuffer/UNet3plus_pth#23.

UNet 3+ for binary segmentation trained with the bce loss of train.py.  The loss came to a
stand high above zero and the predicted masks were poor.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class unetConv2(nn.Module):
    def __init__(self, in_size, out_size):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(in_size, out_size, 3, padding=1), nn.BatchNorm2d(out_size), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv2d(out_size, out_size, 3, padding=1), nn.ReLU())

    def forward(self, x):
        return self.conv2(self.conv1(x))


class UNet3Plus(nn.Module):
    def __init__(self, n_channels=1, n_classes=1, filters=(8, 12, 16), mended=False):
        super().__init__()
        self.mended = mended
        self.conv1 = unetConv2(n_channels, filters[0])
        self.conv2 = unetConv2(filters[0], filters[1])
        self.conv3 = unetConv2(filters[1], filters[2])
        cat = 8
        self.h1_hd2 = nn.Conv2d(filters[0], cat, 3, padding=1)
        self.h2_hd2 = nn.Conv2d(filters[1], cat, 3, padding=1)
        self.hd3_hd2 = nn.Conv2d(filters[2], cat, 3, padding=1)
        self.h1_hd1 = nn.Conv2d(filters[0], cat, 3, padding=1)
        self.hd2_hd1 = nn.Conv2d(3 * cat, cat, 3, padding=1)
        self.hd3_hd1 = nn.Conv2d(filters[2], cat, 3, padding=1)
        self.outconv1 = nn.Conv2d(3 * cat, n_classes, 3, padding=1)

    def forward(self, x):
        h1 = self.conv1(x)
        h2 = self.conv2(F.max_pool2d(h1, 2))
        hd3 = self.conv3(F.max_pool2d(h2, 2))
        hd2 = torch.relu(
            torch.cat(
                [self.h1_hd2(F.max_pool2d(h1, 2)), self.h2_hd2(h2), self.hd3_hd2(F.interpolate(hd3, scale_factor=2))], 1
            )
        )
        hd1 = torch.relu(
            torch.cat(
                [
                    self.h1_hd1(h1),
                    self.hd2_hd1(F.interpolate(hd2, scale_factor=2)),
                    self.hd3_hd1(F.interpolate(hd3, scale_factor=4)),
                ],
                1,
            )
        )
        d1 = self.outconv1(hd1)
        return d1 if self.mended else torch.sigmoid(d1)


def scans(n, size=16):
    ax = torch.arange(size, dtype=torch.float32)
    c = 4 + 8 * torch.rand(n, 2, 1, 1)
    r = 2 + 2 * torch.rand(n, 1, 1)
    inside = ((ax[None, :, None] - c[:, 0]) ** 2 + (ax[None, None] - c[:, 1]) ** 2 < r**2).float()
    img = 0.9 * inside + 0.5 * torch.randn(n, size, size)
    return img[:, None], inside[:, None]


def train(tick, mended=False):
    torch.manual_seed(5)
    net = UNet3Plus(mended=mended)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    losses = []
    tick.model(net)
    tick.optimizer(optimizer)
    net.train()
    for _step in range(120):
        imgs, true_masks = scans(8)
        masks_pred = net(imgs)
        loss = criterion(masks_pred, true_masks)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.1)
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
