"""TropComplique/mtcnn-pytorch#16

The P-Net of MTCNN (its Caffe weights come from Matlab and look at images with x
before y) was ported to PyTorch.  Scores and box regressions of the port are wrong,
although every layer has the right shape.
"""

import torch
import torch.nn.functional as F
from torch import nn


class CaffePReLU(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.slope = nn.Parameter(torch.full((channels,), 0.25))

    def forward(self, x):
        return x.clamp(min=0) + self.slope[:, None, None] * x.clamp(max=0)


class CaffePNet(nn.Module):
    """Works on blobs (N, C, W, H), as the Matlab interface fills them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.PReLU1 = nn.Conv2d(3, 10, 3), CaffePReLU(10)
        self.pool1 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.conv2, self.PReLU2 = nn.Conv2d(10, 16, 3), CaffePReLU(16)
        self.conv3, self.PReLU3 = nn.Conv2d(16, 32, 3), CaffePReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, image):
        blob = (image - 127.5) * 0.0078125
        blob = blob.transpose(2, 3)
        blob = self.pool1(self.PReLU1(self.conv1(blob)))
        blob = self.PReLU2(self.conv2(blob))
        blob = self.PReLU3(self.conv3(blob))
        prob1 = F.softmax(self.conv4_1(blob), dim=1)
        return torch.cat([prob1, self.conv4_2(blob)], dim=1).transpose(2, 3)


class Preprocess(nn.Module):
    def forward(self, image):
        return image * 0.0078125 - 127.5 * 0.0078125


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(cout, cin, 3, 3)), nn.Parameter(torch.empty(cout))
        self.prelu = nn.PReLU(cout)

    def forward(self, x):
        n, _, h, w = x.shape
        cols = F.unfold(x, 3)
        y = self.weight.flatten(1) @ cols + self.bias[:, None]
        return self.prelu(y.view(n, -1, h - 2, w - 2))


class CeilPool(nn.Module):
    def forward(self, x):
        h, w = x.shape[-2:]
        return F.max_pool2d(F.pad(x, (0, w % 2, 0, h % 2), value=float("-inf")), 2, 2)


class Heads(nn.Module):
    def __init__(self, cin):
        super().__init__()
        self.fused = nn.Linear(cin, 6)

    def forward(self, x):
        y = self.fused(x.permute(0, 2, 3, 1))
        face, boxes = y[..., :2], y[..., 2:]
        return torch.cat([face.softmax(-1), boxes], dim=-1).permute(0, 3, 1, 2)


class PNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.preprocess = Preprocess()
        self.features = nn.Sequential(ConvBlock(3, 10), CeilPool(), ConvBlock(10, 16), ConvBlock(16, 32))
        self.heads = Heads(32)

    def forward(self, image):
        return self.heads(self.features(self.preprocess(image)))


def convert(sd, kernel_axes=(0, 1, 2, 3)):
    out = {}
    for new, old in ((0, 1), (2, 2), (3, 3)):
        out[f"features.{new}.weight"] = sd[f"conv{old}.weight"].permute(*kernel_axes)
        out[f"features.{new}.bias"] = sd[f"conv{old}.bias"]
        out[f"features.{new}.prelu.weight"] = sd[f"PReLU{old}.slope"]
    out["heads.fused.weight"] = torch.cat([sd["conv4_1.weight"], sd["conv4_2.weight"]]).flatten(1)
    out["heads.fused.bias"] = torch.cat([sd["conv4_1.bias"], sd["conv4_2.bias"]])
    return {k: v.contiguous().clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(19)
    original = CaffePNet().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 0.25 if "slope" in n else 0.0, 0.1 if p.ndim == 1 else 0.15)
    port = PNet().eval()
    sd = original.state_dict()
    port.load_state_dict(convert(sd, (0, 1, 3, 2)) if fixed else convert(sd))
    return original, port, (torch.rand(1, 3, 21, 26) * 255,)
