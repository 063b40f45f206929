"""After MegEngine/MegDiffusion#7.

A DDPM U-Net was rebuilt in another framework and the published PyTorch checkpoint was
converted for it.  With equal input the error between the two noise predictions is high.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

CH, TD, G = 16, 32, 4


def get_timestep_embedding(t, dim):
    half = dim // 2
    freq = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    arg = t.float()[:, None] * freq[None]
    return torch.cat([arg.sin(), arg.cos()], 1)


class ResnetBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1 = nn.GroupNorm(G, cin, eps=1e-6)
        self.conv1 = nn.Conv2d(cin, cout, 3, 1, 1)
        self.temb_proj = nn.Linear(TD, cout)
        self.norm2 = nn.GroupNorm(G, cout, eps=1e-6)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1)
        self.nin_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.temb_proj(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return self.nin_shortcut(x) + h


class Downsample(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, stride=2, padding=0)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1), mode="constant", value=0))


class Upsample(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, 1, 1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class PesserUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.temb = nn.ModuleList([nn.Linear(CH, TD), nn.Linear(TD, TD)])
        self.conv_in = nn.Conv2d(3, CH, 3, 1, 1)
        self.down_block = ResnetBlock(CH, CH)
        self.downsample = Downsample(CH)
        self.mid = ResnetBlock(CH, 2 * CH)
        self.upsample = Upsample(2 * CH)
        self.up_block = ResnetBlock(3 * CH, CH)
        self.norm_out = nn.GroupNorm(G, CH, eps=1e-6)
        self.conv_out = nn.Conv2d(CH, 3, 3, 1, 1)

    def forward(self, x, t):
        temb = self.temb[1](F.silu(self.temb[0](get_timestep_embedding(t, CH))))
        h0 = self.down_block(self.conv_in(x), temb)
        h = self.mid(self.downsample(h0), temb)
        h = self.up_block(torch.cat([self.upsample(h), h0], 1), temb)
        return self.conv_out(F.silu(self.norm_out(h)))


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class TimeEmbedding(nn.Module):
    def __init__(self, steps=1000):
        super().__init__()
        half = CH // 2
        f = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / (half - 1))
        a = torch.arange(steps, dtype=torch.float64)[:, None] * f
        self.register_buffer("table", torch.cat([a.sin(), a.cos()], -1).float(), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(CH, TD), Swish(), nn.Linear(TD, TD))

    def forward(self, t):
        return self.mlp(self.table[t])


class MegResBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.block1 = nn.Sequential(nn.GroupNorm(G, cin, eps=1e-6), Swish(), nn.Conv2d(cin, cout, 3, padding=1))
        self.temb_proj = nn.Sequential(Swish(), nn.Linear(TD, cout))
        self.block2 = nn.Sequential(nn.GroupNorm(G, cout, eps=1e-6), Swish(), nn.Conv2d(cout, cout, 3, padding=1))
        self.shortcut = nn.Sequential() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x, temb):
        h = self.block1(x) + self.temb_proj(temb).unflatten(1, (-1, 1, 1))
        return self.block2(h) + self.shortcut(x)


class DownSample(nn.Module):
    def __init__(self, c, pads):
        super().__init__()
        self.pads = pads
        self.main = nn.Conv2d(c, c, 3, stride=2)

    def forward(self, x):
        return self.main(F.pad(x, self.pads))


class UpSample(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.main = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.main(x.repeat_interleave(2, 2).repeat_interleave(2, 3))


class MegUNet(nn.Module):
    def __init__(self, pads):
        super().__init__()
        self.time_embedding = TimeEmbedding()
        self.head = nn.Conv2d(3, CH, 3, padding=1)
        self.downblocks = nn.ModuleList([MegResBlock(CH, CH), DownSample(CH, pads)])
        self.middleblock = MegResBlock(CH, 2 * CH)
        self.upblocks = nn.ModuleList([UpSample(2 * CH), MegResBlock(3 * CH, CH)])
        self.tail = nn.Sequential(nn.GroupNorm(G, CH, eps=1e-6), Swish(), nn.Conv2d(CH, 3, 3, padding=1))

    def forward(self, x, t):
        temb = self.time_embedding(t)
        skip = self.downblocks[0](self.head(x), temb)
        h = self.middleblock(self.downblocks[1](skip), temb)
        h = torch.cat([self.upblocks[0](h), skip], dim=1)
        return self.tail(self.upblocks[1](h, temb))


def convert(sd):
    new = {}

    def put(old, name):
        for s in ("weight", "bias"):
            new[f"{name}.{s}"] = sd[f"{old}.{s}"]

    put("temb.0", "time_embedding.mlp.0"), put("temb.1", "time_embedding.mlp.2")
    put("conv_in", "head")
    for o, n in (("down_block", "downblocks.0"), ("mid", "middleblock"), ("up_block", "upblocks.1")):
        put(o + ".norm1", n + ".block1.0"), put(o + ".conv1", n + ".block1.2")
        put(o + ".temb_proj", n + ".temb_proj.1")
        put(o + ".norm2", n + ".block2.0"), put(o + ".conv2", n + ".block2.2")
        if o + ".nin_shortcut.weight" in sd:
            put(o + ".nin_shortcut", n + ".shortcut")
    put("downsample.conv", "downblocks.1.main"), put("upsample.conv", "upblocks.0.main")
    put("norm_out", "tail.0"), put("conv_out", "tail.2")
    return new


def build(fixed):
    torch.manual_seed(7)
    original = PesserUNet().eval()
    with torch.no_grad():
        for p in original.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    port = MegUNet((0, 1, 0, 1) if fixed else (1, 1, 1, 1)).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 3, 12, 12), torch.tensor([17, 640]))
