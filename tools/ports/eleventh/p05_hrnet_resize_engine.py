"""After onnx/onnx-tensorrt#457.

HRNet segmentation, bilinear fusion with align_corners=False, exported for an inference
engine.  The engine's mask looks like a shifted version of the PyTorch mask.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

C0, C1, NC = 8, 12, 4


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, k=3, s=1):
        super().__init__(nn.Conv2d(cin, cout, k, s, k // 2, bias=False), nn.BatchNorm2d(cout))


class HRNetSeg(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBN(3, C0, 3, 2)
        self.branch0 = ConvBN(C0, C0)
        self.down = ConvBN(C0, C1, 3, 2)
        self.branch1 = ConvBN(C1, C1)
        self.fuse = ConvBN(C1, C0, 1)
        self.last_layer = nn.Conv2d(C0 + C1, NC, 1)

    def forward(self, x):
        size = x.shape[-2:]
        x = F.relu(self.stem(x))
        hi = F.relu(self.branch0(x))
        lo = F.relu(self.branch1(F.relu(self.down(x))))
        up = F.interpolate(self.fuse(lo), size=hi.shape[-2:], mode="bilinear", align_corners=False)
        hi = F.relu(hi + up)
        lo = F.interpolate(lo, size=hi.shape[-2:], mode="bilinear", align_corners=False)
        y = self.last_layer(torch.cat([hi, lo], 1))
        return F.interpolate(y, size=size, mode="bilinear", align_corners=False)


class Resize(nn.Module):
    """Linear resize as two small matrices; `coords` names the coordinate transform."""

    def __init__(self, coords):
        super().__init__()
        self.coords = coords

    def matrix(self, n_in, n_out):
        i = torch.arange(n_out, dtype=torch.float32)
        scale = n_in / n_out
        if self.coords == "half_pixel":
            src = (i + 0.5) * scale - 0.5
        else:
            src = i * scale
        src = src.clamp(0, n_in - 1)
        lo = src.floor().long()
        hi = (lo + 1).clamp(max=n_in - 1)
        frac = src - lo
        m = torch.zeros(n_out, n_in)
        r = torch.arange(n_out)
        m.index_put_((r, lo), 1 - frac, accumulate=True)
        m.index_put_((r, hi), frac, accumulate=True)
        return m

    def forward(self, x, size):
        my, mx = self.matrix(x.shape[-2], size[0]), self.matrix(x.shape[-1], size[1])
        return torch.einsum("oh,nchw,pw->ncop", my, x, mx)


class FoldedConv(nn.Conv2d):
    def __init__(self, cin, cout, k=3, s=1, act=True):
        super().__init__(cin, cout, k, s, k // 2)
        self.act = act

    def forward(self, x):
        y = super().forward(x)
        return y.clamp_min(0) if self.act else y


class EngineNet(nn.Module):
    def __init__(self, coords):
        super().__init__()
        self.node_0 = FoldedConv(3, C0, 3, 2)
        self.node_2 = FoldedConv(C0, C0)
        self.node_4 = FoldedConv(C0, C1, 3, 2)
        self.node_6 = FoldedConv(C1, C1)
        self.node_8 = FoldedConv(C1, C0, 1, act=False)
        self.node_10 = nn.Linear(C0 + C1, NC)
        self.resize = Resize(coords)

    def forward(self, data):
        t0 = self.node_0(data)
        t4 = self.node_6(self.node_4(t0))
        t2 = self.node_2(t0)
        grid = tuple(t2.shape[-2:])
        t5 = (self.resize(self.node_8(t4), grid) + t2).clamp_min(0)
        t6 = torch.cat((t5, self.resize(t4, grid)), 1)
        t7 = self.node_10(t6.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.resize(t7, tuple(data.shape[-2:]))


def convert(sd):
    new = {}
    for o, n in (
        ("stem", "node_0"),
        ("branch0", "node_2"),
        ("down", "node_4"),
        ("branch1", "node_6"),
        ("fuse", "node_8"),
    ):
        g = sd[o + ".1.weight"] / (sd[o + ".1.running_var"] + 1e-5).sqrt()
        new[n + ".weight"] = sd[o + ".0.weight"] * g[:, None, None, None]
        new[n + ".bias"] = sd[o + ".1.bias"] - sd[o + ".1.running_mean"] * g
    new["node_10.weight"] = sd["last_layer.weight"].flatten(1)
    new["node_10.bias"] = sd["last_layer.bias"]
    return new


def build(fixed):
    torch.manual_seed(457)
    original = HRNetSeg().eval()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.2), m.running_var.uniform_(0.2, 1.5)
            nn.init.uniform_(m.weight, 0.5, 1.5), nn.init.normal_(m.bias, 0, 0.2)
    port = EngineNet("half_pixel" if fixed else "asymmetric").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 3, 32, 40),)
