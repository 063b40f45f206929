"""After argusswift/YOLOv4-pytorch#89: confidence and class terms of a YOLO head.

A reader of the code asks about the head and the loss; on small data the
confidence term stays up and nothing gets detected.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.leaky_relu(self.bn(self.conv(x)), 0.1)


class YoloHead(nn.Module):
    def __init__(self, cin, num_classes, mended):
        super().__init__()
        self.conv = nn.Conv2d(cin, 5 + num_classes, 1)
        self.mended = mended

    def forward(self, x):
        p = self.conv(x).permute(0, 2, 3, 1)
        dxdy = torch.sigmoid(p[..., 0:2])
        dwdh = p[..., 2:4]
        conf, prob = p[..., 4:5], p[..., 5:]
        if self.mended:
            return torch.cat([dxdy, dwdh, conf, prob], dim=-1)
        return torch.cat([dxdy, dwdh, torch.sigmoid(conf), torch.sigmoid(prob)], dim=-1)


class YOLO(nn.Module):
    def __init__(self, num_classes=3, mended=False):
        super().__init__()
        self.backbone = nn.Sequential(Conv(3, 16, 2), Conv(16, 32, 2))
        self.neck = Conv(32, 32)
        self.head = YoloHead(32, num_classes, mended)

    def forward(self, x):
        return self.head(self.neck(self.backbone(x)))


class YoloLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.BCE = nn.BCEWithLogitsLoss(reduction="none")

    def forward(self, p, label):
        obj = label[..., 4:5]
        n = p.size(0)
        loss_box = (obj * (p[..., 0:4] - label[..., 0:4]) ** 2).sum() / n
        loss_conf = self.BCE(p[..., 4:5], obj).sum() / n
        loss_cls = (obj * self.BCE(p[..., 5:], label[..., 5:])).sum() / n
        return loss_box + loss_conf + loss_cls


def make_batch(n, num_classes=3, size=32, stride=4):
    imgs = 0.1 * torch.randn(n, 3, size, size)
    g = size // stride
    label = torch.zeros(n, g, g, 5 + num_classes)
    for i in range(n):
        cy, cx = torch.randint(1, g - 1, (2,)).tolist()
        c = int(torch.randint(0, num_classes, (1,)))
        y, x = cy * stride, cx * stride
        imgs[i, c, y : y + stride, x : x + stride] += 1.0
        label[i, cy, cx, 0:2] = 0.5
        label[i, cy, cx, 4] = 1
        label[i, cy, cx, 5 + c] = 1
    return imgs, label


def train(tick, mended=False):
    torch.manual_seed(2)
    yolov4 = YOLO(mended=mended)
    optimizer = torch.optim.SGD(yolov4.parameters(), lr=2e-3, momentum=0.9, weight_decay=5e-4)
    criterion = YoloLoss()
    tick.model(yolov4)
    tick.optimizer(optimizer)
    losses = []
    for step in range(150):
        imgs, label = make_batch(16)
        loss = criterion(yolov4(imgs), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
