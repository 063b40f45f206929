"""PINTO0309/onnx2tf#92: a super-resolution network converted to channels-last.

Everything in front of the upsampling agrees with the original; the enlarged picture has mixed-up
colours and blocky patterns.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, n_feats, res_scale=0.5):
        super().__init__()
        self.conv1 = nn.Conv2d(n_feats, n_feats, 3, padding=1)
        self.conv2 = nn.Conv2d(n_feats, n_feats, 3, padding=1)
        self.res_scale = res_scale

    def forward(self, x):
        return x + self.res_scale * self.conv2(F.relu(self.conv1(x)))


class EDSRLite(nn.Module):
    def __init__(self, n_feats=8, scale=2):
        super().__init__()
        self.head = nn.Conv2d(3, n_feats, 3, padding=1)
        self.body = nn.Sequential(ResBlock(n_feats), ResBlock(n_feats))
        self.upconv = nn.Conv2d(n_feats, n_feats * scale**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(scale)
        self.tail = nn.Conv2d(n_feats, 3, 3, padding=1)

    def forward(self, x):
        h = self.head(x)
        h = h + self.body(h)
        return self.tail(F.leaky_relu(self.shuffle(self.upconv(h)), 0.1))


class ConvNHWC(nn.Module):
    """3x3 convolution as nine matrix products on channels-last maps."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(3, 3, c_in, c_out))
        self.bias = nn.Parameter(torch.empty(c_out))

    def forward(self, x):
        h, w = x.shape[1:3]
        p = F.pad(x, (0, 0, 1, 1, 1, 1))
        out = self.bias
        for i in range(3):
            for j in range(3):
                out = out + p[:, i : i + h, j : j + w] @ self.kernel[i, j]
        return out


class DepthToSpace(nn.Module):
    def __init__(self, block, mode):
        super().__init__()
        self.block, self.mode = block, mode

    def forward(self, x):
        n, h, w, c = x.shape
        b = self.block
        if self.mode == "CRD":
            x = x.reshape(n, h, w, c // (b * b), b, b).permute(0, 1, 4, 2, 5, 3)
        else:
            x = x.reshape(n, h, w, b, b, c // (b * b)).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(n, h * b, w * b, c // (b * b))


class TFUpscaler(nn.Module):
    def __init__(self, filters=8, block=2, mode="DCR"):
        super().__init__()
        self.shallow = ConvNHWC(3, filters)
        self.res = nn.ModuleList([nn.ModuleList([ConvNHWC(filters, filters) for _ in range(2)]) for _ in range(2)])
        self.widen = ConvNHWC(filters, filters * block * block)
        self.upsampler = DepthToSpace(block, mode)
        self.rgb = ConvNHWC(filters, 3)

    def forward(self, image):
        feats = self.shallow(image.permute(0, 2, 3, 1))
        y = feats
        for first, second in self.res:
            y = torch.add(y, second(first(y).clamp(min=0)), alpha=0.5)
        y = self.upsampler(self.widen(feats + y))
        y = torch.maximum(y, 0.1 * y)
        return self.rgb(y).permute(0, 3, 1, 2)


def convert(sd):
    names = {"head": "shallow", "upconv": "widen", "tail": "rgb"}
    for i in range(2):
        for j in range(2):
            names[f"body.{i}.conv{j + 1}"] = f"res.{i}.{j}"
    out = {}
    for src, dst in names.items():
        out[dst + ".kernel"] = sd[src + ".weight"].permute(2, 3, 1, 0)
        out[dst + ".bias"] = sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(14)
    original = EDSRLite().eval()
    port = TFUpscaler(mode="CRD" if fixed else "DCR").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.rand(2, 3, 7, 9),)
