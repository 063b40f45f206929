"""lukemelas/EfficientNet-PyTorch#235: TensorFlow-style "same" convolutions with the padding fixed at build time.

The network that pads on the fly matches TensorFlow; the one whose padding is computed once from
the image size returns other logits with the same weights.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Conv2dDynamicSamePadding(nn.Conv2d):
    def forward(self, x):
        ih, iw = x.shape[-2:]
        kh, kw = self.weight.shape[-2:]
        s = self.stride[0]
        ph = max((math.ceil(ih / s) - 1) * s + kh - ih, 0)
        pw = max((math.ceil(iw / s) - 1) * s + kw - iw, 0)
        x = F.pad(x, [pw // 2, pw - pw // 2, ph // 2, ph - ph // 2])
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, 1, self.groups)


class MBConvBlock(nn.Module):
    def __init__(self, c_in, c_out, expand, k, stride):
        super().__init__()
        mid = c_in * expand
        self._expand_conv = nn.Conv2d(c_in, mid, 1, bias=False)
        self._bn0 = nn.BatchNorm2d(mid, eps=1e-3)
        self._depthwise_conv = Conv2dDynamicSamePadding(mid, mid, k, stride, groups=mid, bias=False)
        self._bn1 = nn.BatchNorm2d(mid, eps=1e-3)
        self._se_reduce, self._se_expand = nn.Conv2d(mid, 4, 1), nn.Conv2d(4, mid, 1)
        self._project_conv = nn.Conv2d(mid, c_out, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(c_out, eps=1e-3)
        self.skip = stride == 1 and c_in == c_out

    def forward(self, x):
        y = F.silu(self._bn0(self._expand_conv(x)))
        y = F.silu(self._bn1(self._depthwise_conv(y)))
        se = self._se_expand(F.silu(self._se_reduce(F.adaptive_avg_pool2d(y, 1))))
        y = self._bn2(self._project_conv(torch.sigmoid(se) * y))
        return x + y if self.skip else y


class EfficientNet(nn.Module):
    def __init__(self):
        super().__init__()
        self._conv_stem = Conv2dDynamicSamePadding(3, 8, 3, 2, bias=False)
        self._bn = nn.BatchNorm2d(8, eps=1e-3)
        self._blocks = nn.ModuleList([MBConvBlock(8, 8, 2, 3, 1), MBConvBlock(8, 12, 2, 5, 2)])
        self._fc = nn.Linear(12, 6)

    def forward(self, x):
        x = F.silu(self._bn(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return self._fc(x.mean((2, 3)))


def static_padding(size, kernel, stride, split):
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    half = total - total // 2
    return (half, half) if split == "even" else (total - half, half)


class PaddedConv(nn.Module):
    def __init__(self, c_in, c_out, k, stride, image, groups=1, split="even"):
        super().__init__()
        lo, hi = static_padding(image, k, stride, split)
        self.pad = nn.ZeroPad2d((lo, hi, lo, hi))
        self.conv = nn.Conv2d(c_in, c_out, k, stride, groups=groups)

    def forward(self, x):
        return self.conv(self.pad(x))


class SqueezeExcite(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self.down, self.up = nn.Linear(c, r), nn.Linear(r, c)

    def forward(self, x):
        s = self.up(F.silu(self.down(x.flatten(2).mean(-1))))
        return x * s.sigmoid()[:, :, None, None]


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, ratio, k, stride, image, split):
        super().__init__()
        self.residual = cin == cout and stride == 1
        self.body = nn.Sequential(
            nn.Conv2d(cin, cin * ratio, 1),
            nn.SiLU(),
            PaddedConv(cin * ratio, cin * ratio, k, stride, image, cin * ratio, split),
            nn.SiLU(),
            SqueezeExcite(cin * ratio, 4),
            nn.Conv2d(cin * ratio, cout, 1),
        )

    def forward(self, x):
        return self.body(x) + (x if self.residual else 0)


class EfficientNetStatic(nn.Module):
    """Batch norms are merged; every layer knows its image size."""

    def __init__(self, image=32, split="even"):
        super().__init__()
        self.stem = PaddedConv(3, 8, 3, 2, image, split=split)
        self.stage1 = InvertedResidual(8, 8, 2, 3, 1, image // 2, split)
        self.stage2 = InvertedResidual(8, 12, 2, 5, 2, image // 2, split)
        self.classifier = nn.Linear(12, 6)

    def forward(self, x):
        x = self.stage2(self.stage1(F.silu(self.stem(x))))
        return self.classifier(x.flatten(2).mean(-1))


def convert(sd):
    def merged(conv, bn):
        g = sd[bn + ".weight"] * (sd[bn + ".running_var"] + 1e-3).rsqrt()
        return sd[conv + ".weight"] * g[:, None, None, None], sd[bn + ".bias"] - g * sd[bn + ".running_mean"]

    out = {"classifier.weight": sd["_fc.weight"], "classifier.bias": sd["_fc.bias"]}
    out["stem.conv.weight"], out["stem.conv.bias"] = merged("_conv_stem", "_bn")
    for i, stage in enumerate(("stage1", "stage2")):
        s, d = f"_blocks.{i}.", stage + ".body."
        for conv, bn, dst in (
            ("_expand_conv", "_bn0", "0"),
            ("_depthwise_conv", "_bn1", "2.conv"),
            ("_project_conv", "_bn2", "5"),
        ):
            out[d + dst + ".weight"], out[d + dst + ".bias"] = merged(s + conv, s + bn)
        for name, dst in (("_se_reduce", "4.down"), ("_se_expand", "4.up")):
            out[d + dst + ".weight"], out[d + dst + ".bias"] = (
                sd[s + name + ".weight"].flatten(1),
                sd[s + name + ".bias"],
            )
    return out


def build(fixed):
    torch.manual_seed(40)
    original = EfficientNet().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.2)
            m.running_var.uniform_(0.1, 0.6)
            nn.init.normal_(m.bias, 0, 0.2)
    port = EfficientNetStatic(split="tail" if fixed else "even").eval()
    port.load_state_dict(convert(original.state_dict()))
    ramp = torch.linspace(-1, 1, 32)
    image = ramp[:, None] * 1.5 - ramp[None, :] + torch.randn(2, 3, 32, 32)
    return original, port, (image,)
