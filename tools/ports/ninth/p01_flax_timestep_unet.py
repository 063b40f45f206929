"""huggingface/diffusers#1369

A small diffusion UNet written in PyTorch was re-implemented in the channels-last
manner of the Flax models (HWIO kernels, (in, out) dense kernels).  With the same
weights and the same noise the two predict different noise, the more so the more
the network listens to the timestep.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def get_timestep_embedding(timesteps, dim, flip_sin_to_cos, freq_shift=0.0, max_period=10000):
    half = dim // 2
    exponent = -math.log(max_period) * torch.arange(half, dtype=torch.float32) / (half - freq_shift)
    emb = timesteps[:, None].float() * torch.exp(exponent)[None]
    emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)
    if flip_sin_to_cos:
        emb = torch.cat([emb[:, half:], emb[:, :half]], dim=-1)
    return emb


class ResnetBlock2D(nn.Module):
    def __init__(self, cin, cout, temb, groups=4):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.time_emb_proj = nn.Linear(temb, cout)
        self.norm2 = nn.GroupNorm(groups, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return self.conv_shortcut(x) + h


class UNet2DModel(nn.Module):
    def __init__(self, ch=8, temb=32):
        super().__init__()
        self.ch = ch
        self.conv_in = nn.Conv2d(3, ch, 3, padding=1)
        self.time_embedding = nn.Sequential(nn.Linear(ch, temb), nn.SiLU(), nn.Linear(temb, temb))
        self.down_block = ResnetBlock2D(ch, 2 * ch, temb)
        self.downsample = nn.Conv2d(2 * ch, 2 * ch, 3, stride=2, padding=1)
        self.mid_block = ResnetBlock2D(2 * ch, 2 * ch, temb)
        self.up_block = ResnetBlock2D(4 * ch, ch, temb)
        self.conv_norm_out = nn.GroupNorm(4, ch)
        self.conv_out = nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, sample, timestep):
        temb = self.time_embedding(get_timestep_embedding(timestep, self.ch, flip_sin_to_cos=True))
        skip = self.down_block(self.conv_in(sample), temb)
        x = self.mid_block(self.downsample(skip), temb)
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.up_block(torch.cat([x, skip], dim=1), temb)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class Conv(nn.Module):
    def __init__(self, cin, cout, k, stride=1):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(k, k, cin, cout))
        self.bias = nn.Parameter(torch.empty(cout))
        self.stride, self.pad = stride, k // 2

    def forward(self, x):
        y = F.conv2d(x.permute(0, 3, 1, 2), self.kernel.permute(3, 2, 0, 1), self.bias, self.stride, self.pad)
        return y.permute(0, 2, 3, 1)


class Dense(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cin, cout))
        self.bias = nn.Parameter(torch.empty(cout))

    def forward(self, x):
        return x @ self.kernel + self.bias


class GroupNorm(nn.Module):
    def __init__(self, groups, ch):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(ch))
        self.bias = nn.Parameter(torch.empty(ch))
        self.groups = groups

    def forward(self, x):
        b, h, w, c = x.shape
        g = x.reshape(b, h, w, self.groups, c // self.groups)
        mean = g.mean((1, 2, 4), keepdim=True)
        var = g.var((1, 2, 4), unbiased=False, keepdim=True)
        return ((g - mean) * torch.rsqrt(var + 1e-5)).reshape(b, h, w, c) * self.scale + self.bias


class FlaxTimesteps(nn.Module):
    def __init__(self, dim, flip_sin_to_cos=False):
        super().__init__()
        self.dim, self.flip_sin_to_cos = dim, flip_sin_to_cos

    def forward(self, t):
        half = self.dim // 2
        inv = torch.exp(torch.arange(half) * -(math.log(10000.0) / half))
        arg = t.float().unsqueeze(1) * inv
        parts = [arg.cos(), arg.sin()] if self.flip_sin_to_cos else [arg.sin(), arg.cos()]
        return torch.cat(parts, dim=1)


class FlaxResnetBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.norm1, self.conv1 = GroupNorm(4, cin), Conv(cin, cout, 3)
        self.time_emb_proj = Dense(temb, cout)
        self.norm2, self.conv2 = GroupNorm(4, cout), Conv(cout, cout, 3)
        self.shortcut = Conv(cin, cout, 1)

    def forward(self, x, temb):
        residual = self.shortcut(x)
        x = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(temb)).unsqueeze(1).unsqueeze(1)
        return self.conv2(F.silu(self.norm2(x))) + residual


class FlaxUNet(nn.Module):
    def __init__(self, ch=8, temb=32, flip_sin_to_cos=False):
        super().__init__()
        self.time_proj = FlaxTimesteps(ch, flip_sin_to_cos)
        self.linear_1, self.linear_2 = Dense(ch, temb), Dense(temb, temb)
        self.conv_in = Conv(3, ch, 3)
        self.down, self.down_conv = FlaxResnetBlock(ch, 2 * ch, temb), Conv(2 * ch, 2 * ch, 3, 2)
        self.mid = FlaxResnetBlock(2 * ch, 2 * ch, temb)
        self.up = FlaxResnetBlock(4 * ch, ch, temb)
        self.norm_out, self.conv_out = GroupNorm(4, ch), Conv(ch, 3, 3)

    def forward(self, sample, timestep):
        t_emb = self.linear_2(F.silu(self.linear_1(self.time_proj(timestep))))
        h0 = self.down(self.conv_in(sample.permute(0, 2, 3, 1)), t_emb)
        h = self.mid(self.down_conv(h0), t_emb)
        h = h.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
        h = self.up(torch.cat([h, h0], dim=-1), t_emb)
        return self.conv_out(F.silu(self.norm_out(h))).permute(0, 3, 1, 2)


RENAME = [
    ("time_embedding.0", "linear_1"),
    ("time_embedding.2", "linear_2"),
    ("conv_norm_out", "norm_out"),
    ("down_block", "down"),
    ("downsample", "down_conv"),
    ("mid_block", "mid"),
    ("up_block", "up"),
    ("conv_shortcut", "shortcut"),
]


def convert(sd):
    out = {}
    for name, w in sd.items():
        for a, b in RENAME:
            name = name.replace(a, b)
        if name.endswith(".weight"):
            name = name[:-6] + ("scale" if w.ndim == 1 else "kernel")
            w = w.permute(2, 3, 1, 0) if w.ndim == 4 else w.t() if w.ndim == 2 else w
        out[name] = w.clone()
    return out


def build(fixed):
    torch.manual_seed(0)
    original = UNet2DModel().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n and n.endswith("weight") else 0.0, 0.2)
    port = FlaxUNet(flip_sin_to_cos=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 3, 8, 8), torch.tensor([17, 640]))
