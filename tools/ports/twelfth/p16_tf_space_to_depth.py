"""After tensorflow/tensorflow#53291: a raw-image restoration net trained in TensorFlow (channels
last, space_to_depth in front, depth_to_space behind) taken over to torch, where pixel_unshuffle
and pixel_shuffle stand for them. Single-channel experiments agreed; the colour model does not."""

import torch
import torch.nn as nn
import torch.nn.functional as F

R, CIN, CH = 2, 3, 16


def space_to_depth(x, r):
    b, h, w, c = x.shape
    return x.view(b, h // r, r, w // r, r, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h // r, w // r, r * r * c)


def depth_to_space(x, r):
    b, h, w, c = x.shape
    return x.view(b, h, w, r, r, c // (r * r)).permute(0, 1, 3, 2, 4, 5).reshape(b, h * r, w * r, c // (r * r))


class KerasConv2D(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(k, k, cin, cout) * (2.0 / (k * k * cin)) ** 0.5)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)

    def forward(self, x):
        k = self.kernel.shape[0]
        y = F.conv2d(x.permute(0, 3, 1, 2), self.kernel.permute(3, 2, 0, 1), self.bias, padding=k // 2)
        return y.permute(0, 2, 3, 1)


class KerasRestorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv2d = KerasConv2D(CIN * R * R, CH, 3)
        self.conv2d_1 = KerasConv2D(CH, CH, 3)
        self.conv2d_2 = KerasConv2D(CH, CH, 1)
        self.conv2d_3 = KerasConv2D(CH, CIN * R * R, 3)

    def forward(self, image):
        x = image.permute(0, 2, 3, 1)
        h = F.relu(self.conv2d(space_to_depth(x, R)))
        g = self.conv2d_2(F.relu(self.conv2d_1(h)))
        h = h + g * torch.sigmoid(g)
        y = depth_to_space(self.conv2d_3(h), R)
        return (y + x).permute(0, 3, 1, 2)


class ResidualUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.spatial = nn.Conv2d(CH, CH, 3, padding=1)
        self.channel = nn.Linear(CH, CH)
        self.swish = nn.SiLU()

    def forward(self, x):
        y = self.spatial(x).relu().permute(0, 2, 3, 1)
        return x + self.swish(self.channel(y)).permute(0, 3, 1, 2)


class TorchRestorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.PixelUnshuffle(R), nn.Conv2d(CIN * R * R, CH, 3, padding=1), nn.ReLU())
        self.body = ResidualUnit()
        self.tail = nn.Sequential(nn.Conv2d(CH, CIN * R * R, 3, padding=1), nn.PixelShuffle(R))

    def forward(self, image):
        return image + self.tail(self.body(self.head(image)))


def oihw(kernel):
    return kernel.permute(3, 2, 0, 1).contiguous()


def channel_order():
    return torch.arange(R * R * CIN).view(R * R, CIN).t().reshape(-1)


def convert(sd, fixed=False):
    order = channel_order()
    w_in = oihw(sd["conv2d.kernel"])
    if fixed:
        w_in = w_in[:, order]
    return {
        "head.1.weight": w_in,
        "head.1.bias": sd["conv2d.bias"],
        "body.spatial.weight": oihw(sd["conv2d_1.kernel"]),
        "body.spatial.bias": sd["conv2d_1.bias"],
        "body.channel.weight": sd["conv2d_2.kernel"][0, 0].t(),
        "body.channel.bias": sd["conv2d_2.bias"],
        "tail.0.weight": oihw(sd["conv2d_3.kernel"])[order],
        "tail.0.bias": sd["conv2d_3.bias"][order],
    }


def build(fixed):
    torch.manual_seed(53291)
    original = KerasRestorer().eval()
    port = TorchRestorer().eval()
    port.load_state_dict(convert(original.state_dict(), fixed))
    return original, port, (torch.rand(2, CIN, 12, 12),)
