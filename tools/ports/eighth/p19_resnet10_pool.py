"""After helper2424/resnet10#2.

A ResNet-10 trained with JAX serves as frozen vision encoder of a robot policy.  It was brought
to PyTorch, layouts and projections included, and the features of both were compared.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def same_pads(size, k, s):
    total = max((-(-size // s) - 1) * s + k - size, 0)
    return total // 2, total - total // 2


class FlaxConv(nn.Module):
    """flax.linen.Conv: NHWC, kernel HWIO, padding SAME."""

    def __init__(self, cin, cout, k, s=1):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(k, k, cin, cout) * (2 / (k * k * cin)) ** 0.5)
        self.k, self.s = k, s

    def forward(self, x):
        x = F.pad(x.permute(0, 3, 1, 2), same_pads(x.shape[2], self.k, self.s) + same_pads(x.shape[1], self.k, self.s))
        return F.conv2d(x, self.kernel.permute(3, 2, 0, 1), stride=self.s).permute(0, 2, 3, 1)


class FlaxGroupNorm(nn.Module):
    def __init__(self, c, groups=4):
        super().__init__()
        self.scale, self.bias, self.groups = (
            nn.Parameter(torch.rand(c) + 0.5),
            nn.Parameter(torch.randn(c) * 0.2),
            groups,
        )

    def forward(self, x):
        g = x.unflatten(-1, (self.groups, -1))
        mu = g.mean((1, 2, 4), keepdim=True)
        var = (g - mu).square().mean((1, 2, 4), keepdim=True)
        return ((g - mu) * torch.rsqrt(var + 1e-5)).flatten(3) * self.scale + self.bias


class FlaxResNetBlock(nn.Module):
    def __init__(self, cin, cout, s):
        super().__init__()
        self.Conv_0, self.GroupNorm_0 = FlaxConv(cin, cout, 3, s), FlaxGroupNorm(cout)
        self.Conv_1, self.GroupNorm_1 = FlaxConv(cout, cout, 3), FlaxGroupNorm(cout)
        self.proj = s != 1 or cin != cout
        if self.proj:
            self.conv_proj, self.norm_proj = FlaxConv(cin, cout, 1, s), FlaxGroupNorm(cout)

    def forward(self, x):
        y = torch.relu(self.GroupNorm_0(self.Conv_0(x)))
        y = self.GroupNorm_1(self.Conv_1(y))
        return torch.relu(y + (self.norm_proj(self.conv_proj(x)) if self.proj else x))


class FlaxResNet10(nn.Module):
    def __init__(self, widths=(8, 12, 16)):
        super().__init__()
        self.conv_init, self.norm_init = FlaxConv(3, 8, 7, 2), FlaxGroupNorm(8)
        self.blocks = nn.ModuleList(
            [FlaxResNetBlock(a, b, 1 if i == 0 else 2) for i, (a, b) in enumerate(zip((8,) + widths, widths))]
        )

    @staticmethod
    def max_pool(x, k=3, s=2):
        x = F.pad(x.permute(0, 3, 1, 2), same_pads(x.shape[2], k, s) + same_pads(x.shape[1], k, s), value=float("-inf"))
        return F.max_pool2d(x, k, s).permute(0, 2, 3, 1)

    def forward(self, pixels):
        x = pixels.permute(0, 2, 3, 1)
        x = self.max_pool(torch.relu(self.norm_init(self.conv_init(x))))
        for blk in self.blocks:
            x = blk(x)
        return x.permute(0, 3, 1, 2)


class Conv2dSame(nn.Conv2d):
    def forward(self, x):
        k, s = self.kernel_size[0], self.stride[0]
        (top, bottom), (left, right) = same_pads(x.shape[2], k, s), same_pads(x.shape[3], k, s)
        return super().forward(F.pad(x, (left, right, top, bottom)))


class MaxPool2dSame(nn.MaxPool2d):
    def forward(self, x):
        (top, bottom), (left, right) = (same_pads(n, self.kernel_size, self.stride) for n in x.shape[2:])
        return super().forward(F.pad(x, (left, right, top, bottom), value=float("-inf")))


class BasicBlock(nn.Module):
    def __init__(self, in_channels, out_channels, stride=1):
        super().__init__()
        self.conv1, self.norm1 = (
            Conv2dSame(in_channels, out_channels, 3, stride, bias=False),
            nn.GroupNorm(4, out_channels),
        )
        self.conv2, self.norm2 = Conv2dSame(out_channels, out_channels, 3, bias=False), nn.GroupNorm(4, out_channels)
        self.shortcut = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                Conv2dSame(in_channels, out_channels, 1, stride, bias=False), nn.GroupNorm(4, out_channels)
            )

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet10(nn.Module):
    def __init__(self, pooler, hidden_sizes=(8, 12, 16)):
        super().__init__()
        self.embedder = nn.Sequential(Conv2dSame(3, 8, 7, 2, bias=False), nn.GroupNorm(4, 8), nn.ReLU(), pooler)
        blocks, cin = [], 8
        for i, c in enumerate(hidden_sizes):
            blocks.append(BasicBlock(cin, c, 1 if i == 0 else 2))
            cin = c
        self.encoder = nn.Sequential(*blocks)

    def forward(self, x):
        return self.encoder(self.embedder(x))


def load_jax(sd):
    names = [
        ("conv_init.kernel", "embedder.0.weight"),
        ("norm_init", "embedder.1"),
        ("blocks", "encoder"),
        ("Conv_0", "conv1"),
        ("Conv_1", "conv2"),
        ("GroupNorm_0", "norm1"),
        ("GroupNorm_1", "norm2"),
        ("conv_proj", "shortcut.0"),
        ("norm_proj", "shortcut.1"),
        ("kernel", "weight"),
        ("scale", "weight"),
    ]
    out = {}
    for k, v in sd.items():
        for a, b in names:
            k = k.replace(a, b)
        out[k] = v.permute(3, 2, 0, 1) if v.dim() == 4 else v
    return out


def build(fixed):
    torch.manual_seed(10)
    original = FlaxResNet10().eval()
    port = ResNet10(MaxPool2dSame(3, 2) if fixed else nn.MaxPool2d(3, 2, padding=1)).eval()
    port.load_state_dict(load_jax(original.state_dict()))
    return original, port, (torch.randn(2, 3, 64, 64),)
