"""gmongaras/Diffusion_models_from_scratch#10: a denoising U-Net written from scratch.

With a reference model's weights the predicted noise comes out differently, and it depends on the
place of a sample within the batch.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class TimestepEmbedding(nn.Module):
    """PE(t, 2i) = sin(t / 10000^(2i/d)), PE(t, 2i+1) = cos(...), followed by an MLP."""

    def __init__(self, dim, out):
        super().__init__()
        self.dim = dim
        self.linear_1, self.linear_2 = nn.Linear(dim, out), nn.Linear(out, out)

    def forward(self, t):
        freq = torch.exp(torch.arange(0, self.dim, 2) * (-math.log(10000.0) / self.dim))
        arg = t.float()[:, None] * freq[None]
        emb = torch.stack([arg.sin(), arg.cos()], dim=-1).flatten(1)
        return self.linear_2(F.silu(self.linear_1(emb)))


class ResnetBlock(nn.Module):
    def __init__(self, c_in, c_out, t_dim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, c_in), nn.GroupNorm(2, c_out)
        self.conv1, self.conv2 = nn.Conv2d(c_in, c_out, 3, padding=1), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.time_emb_proj = nn.Linear(t_dim, c_out)
        self.shortcut = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, ch=6, t_dim=16):
        super().__init__()
        self.time_embedding = TimestepEmbedding(12, t_dim)
        self.conv_in = nn.Conv2d(3, ch, 3, padding=1)
        self.down = ResnetBlock(ch, 2 * ch, t_dim)
        self.mid = ResnetBlock(2 * ch, 2 * ch, t_dim)
        self.up = ResnetBlock(3 * ch, ch, t_dim)
        self.conv_out = nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, x, t):
        temb = self.time_embedding(t)
        h0 = self.conv_in(x)
        h = self.mid(self.down(F.avg_pool2d(h0, 2), temb), temb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.conv_out(F.silu(self.up(torch.cat([h, h0], 1), temb)))


class PositionalEncoding(nn.Module):
    def __init__(self, num_channels, axis):
        super().__init__()
        self.axis = axis
        power = torch.arange(0, num_channels // 2).repeat_interleave(2)
        self.register_buffer("div", 10000.0 ** (2 * power / num_channels), persistent=False)

    def forward(self, time_steps):
        embeddings = time_steps.unsqueeze(-1) / self.div
        if self.axis == 0:
            embeddings[::2] = embeddings[::2].sin()
            embeddings[1::2] = embeddings[1::2].cos()
        else:
            embeddings[:, ::2] = embeddings[:, ::2].sin()
            embeddings[:, 1::2] = embeddings[:, 1::2].cos()
        return embeddings


class TimeEncoder(nn.Module):
    def __init__(self, channels, width, axis):
        super().__init__()
        self.pos = PositionalEncoding(channels, axis)
        self.net = nn.Sequential(nn.Linear(channels, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())

    def forward(self, t):
        return self.net(self.pos(t))


class ResBlock(nn.Module):
    def __init__(self, inCh, outCh, width):
        super().__init__()
        self.block_a = nn.Sequential(nn.GroupNorm(2, inCh), nn.SiLU(), nn.Conv2d(inCh, outCh, 3, padding=1))
        self.block_b = nn.Sequential(nn.GroupNorm(2, outCh), nn.SiLU(), nn.Conv2d(outCh, outCh, 3, padding=1))
        self.res_map = nn.Linear(inCh, outCh)
        self.t_map = nn.Conv1d(width, outCh, 1)

    def forward(self, X, t):
        shift = self.t_map(t.unsqueeze(-1)).unsqueeze(-1)
        res = self.res_map(X.movedim(1, -1)).movedim(-1, 1)
        return self.block_b(self.block_a(X) + shift) + res


class U_Net(nn.Module):
    def __init__(self, embCh=6, width=16, axis=0):
        super().__init__()
        self.time_encoder = TimeEncoder(12, width, axis)
        self.inp = nn.Conv2d(3, embCh, 3, padding=1)
        self.blocks = nn.ModuleList([ResBlock(a * embCh, b * embCh, width) for a, b in ((1, 2), (2, 2), (3, 1))])
        self.out = nn.Sequential(nn.SiLU(), nn.Conv2d(embCh, 3, 3, padding=1))

    def forward(self, X, t):
        t = self.time_encoder(t.float())
        skip = self.inp(X)
        n, c, h, w = skip.shape
        X = skip.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))
        for block in self.blocks[:2]:
            X = block(X, t)
        X = X.repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.out(self.blocks[2](torch.cat((X, skip), dim=1), t))


def convert(sd):
    names = {
        "time_embedding.linear_1": "time_encoder.net.0",
        "time_embedding.linear_2": "time_encoder.net.2",
        "conv_in": "inp",
        "conv_out": "out.1",
    }
    for i, b in enumerate(("down", "mid", "up")):
        for src, dst in (
            ("norm1", "block_a.0"),
            ("conv1", "block_a.2"),
            ("norm2", "block_b.0"),
            ("conv2", "block_b.2"),
            ("shortcut", "res_map"),
            ("time_emb_proj", "t_map"),
        ):
            names[f"{b}.{src}"] = f"blocks.{i}.{dst}"
    out = {}
    for src, dst in names.items():
        w = sd[src + ".weight"]
        w = w.flatten(1) if dst.endswith("res_map") else w[:, :, None] if dst.endswith("t_map") else w
        out[dst + ".weight"], out[dst + ".bias"] = w, sd[src + ".bias"]
    return out


def build(fixed):
    torch.manual_seed(50)
    original = UNet().eval()
    with torch.no_grad():
        for m in (original.down, original.mid, original.up):
            m.time_emb_proj.weight.mul_(3.0)
            m.norm1.bias.normal_(0, 0.2)
    port = U_Net(axis=1 if fixed else 0).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(3, 3, 8, 8), torch.tensor([3, 11, 20]))
