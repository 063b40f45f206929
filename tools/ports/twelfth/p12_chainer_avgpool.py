"""After chainer/onnx-chainer#45: an inception-like classifier written with chainer's pooling, and
the network that results when its graph is exported and read back with the default attributes of
the exchange format."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def average_pooling_2d(x, ksize, stride, pad):
    """Chainer's definition: the window sum over the zero-padded map divided by ksize * ksize."""
    cols = F.unfold(F.pad(x, (pad,) * 4), ksize, stride=stride)
    b, c, h, w = x.shape
    oh, ow = (h + 2 * pad - ksize) // stride + 1, (w + 2 * pad - ksize) // stride + 1
    return cols.view(b, c, ksize * ksize, oh, ow).sum(2) / (ksize * ksize)


class InceptionBlock(nn.Module):
    def __init__(self, cin, c1, c3, cp):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, c1, 1)
        self.proj3 = nn.Conv2d(cin, c3, 1)
        self.conv3 = nn.Conv2d(c3, c3, 3, padding=1)
        self.projp = nn.Conv2d(cin, cp, 1)

    def forward(self, x):
        a = self.conv1(x)
        b = self.conv3(F.relu(self.proj3(x)))
        p = self.projp(average_pooling_2d(x, 3, 1, 1))
        return F.relu(torch.cat([a, b, p], 1))


class ChainerInception(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, padding=1)
        self.inc_a = InceptionBlock(12, 8, 8, 8)
        self.inc_b = InceptionBlock(24, 8, 12, 12)
        self.fc = nn.Linear(32, 6)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.conv(x)), 2)
        h = self.inc_b(self.inc_a(h))
        return self.fc(h.mean((2, 3)))


class AveragePoolNode(nn.Module):
    def __init__(self, kernel_shape, pads, count_include_pad=0):
        super().__init__()
        self.kernel_shape, self.pads = kernel_shape, pads
        self.count_include_pad = count_include_pad

    def forward(self, x):
        return F.avg_pool2d(x, self.kernel_shape, 1, self.pads, count_include_pad=bool(self.count_include_pad))


class Branches(nn.Module):
    """The three 1x1 convolutions of a block; those on the same input run as one."""

    def __init__(self, cin, c1, c3, cp, **pool_attrs):
        super().__init__()
        self.split = (c1, c3)
        self.pointwise = nn.Conv2d(cin, c1 + c3, 1)
        self.spatial = nn.Conv2d(c3, c3, 3, padding=1)
        self.pool = AveragePoolNode(3, 1, **pool_attrs)
        self.after_pool = nn.Conv2d(cin, cp, 1)

    def forward(self, x):
        pooled = self.after_pool(self.pool(x))
        a, b = self.pointwise(x).split(self.split, 1)
        return torch.cat((a, self.spatial(b.relu()), pooled), 1).relu()


class ImportedGraph(nn.Module):
    def __init__(self, **pool_attrs):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.node_a = Branches(12, 8, 8, 8, **pool_attrs)
        self.node_b = Branches(24, 8, 12, 12, **pool_attrs)
        self.gemm = nn.Conv2d(32, 6, 1)

    def forward(self, x):
        h = F.adaptive_avg_pool2d(self.node_b(self.node_a(self.stem(x))), 1)
        return self.gemm(h).flatten(1)


def convert(sd):
    out = {}
    for p in ("weight", "bias"):
        out[f"stem.0.{p}"] = sd[f"conv.{p}"]
        w = sd[f"fc.{p}"]
        out[f"gemm.{p}"] = w[:, :, None, None] if p == "weight" else w
        for s, d in (("inc_a", "node_a"), ("inc_b", "node_b")):
            out[f"{d}.pointwise.{p}"] = torch.cat([sd[f"{s}.conv1.{p}"], sd[f"{s}.proj3.{p}"]])
            out[f"{d}.spatial.{p}"] = sd[f"{s}.conv3.{p}"]
            out[f"{d}.after_pool.{p}"] = sd[f"{s}.projp.{p}"]
    return out


def build(fixed):
    torch.manual_seed(45)
    original = ChainerInception().eval()
    for p in original.parameters():
        p.data.mul_(1.6)
    attrs = {"count_include_pad": 1} if fixed else {}
    port = ImportedGraph(**attrs).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 3, 12, 12) + 0.5,)
