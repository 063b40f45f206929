"""zsyOAOA/ResShift#81

The window-attention blocks of a Swin restoration network were rewritten for
feature maps in (B, C, H, W), with 1x1 convolutions for the projections.  On tiles
without shift the two agree; after the first shifted block the restored images differ.
"""

import torch
import torch.nn.functional as F
from torch import nn


def window_partition(x, ws):
    B, H, W, C = x.shape
    x = x.view(B, H // ws, ws, W // ws, ws, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, C)


def window_reverse(windows, ws, H, W):
    B = windows.shape[0] // (H * W // ws // ws)
    x = windows.view(B, H // ws, W // ws, ws, ws, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, -1)


def relative_index(ws):
    c = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")).flatten(1)
    rel = (c[:, :, None] - c[:, None, :]) + ws - 1
    return rel[0] * (2 * ws - 1) + rel[1]


class WindowAttention(nn.Module):
    def __init__(self, dim, ws, heads):
        super().__init__()
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * ws - 1) ** 2, heads))
        self.register_buffer("relative_position_index", relative_index(ws), persistent=False)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.heads = heads

    def forward(self, x, mask):
        B_, N, C = x.shape
        q, k, v = self.qkv(x).view(B_, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = (q * (C // self.heads) ** -0.5) @ k.transpose(-2, -1)
        attn = attn + self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        if mask is not None:
            nW = mask.shape[0]
            attn = (attn.view(-1, nW, self.heads, N, N) + mask[None, :, None]).view(-1, self.heads, N, N)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(B_, N, C))


class SwinTransformerBlock(nn.Module):
    def __init__(self, dim, heads, ws, shift):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), WindowAttention(dim, ws, heads)
        self.norm2, self.mlp = (
            nn.LayerNorm(dim),
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)),
        )
        self.ws, self.shift = ws, shift

    def calculate_mask(self, H, W):
        if self.shift == 0:
            return None
        img_mask = torch.zeros(1, H, W, 1)
        cuts = (slice(0, -self.ws), slice(-self.ws, -self.shift), slice(-self.shift, None))
        cnt = 0
        for h in cuts:
            for w in cuts:
                img_mask[:, h, w, :] = cnt
                cnt += 1
        m = window_partition(img_mask, self.ws).squeeze(-1)
        return (m[:, None, :] != m[:, :, None]).float() * -100.0

    def forward(self, x):
        _B, H, W, _C = x.shape
        h = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        h = self.attn(window_partition(h, self.ws), self.calculate_mask(H, W))
        x = x + torch.roll(window_reverse(h, self.ws, H, W), (self.shift, self.shift), (1, 2))
        return x + self.mlp(self.norm2(x))


class SwinRestorer(nn.Module):
    def __init__(self, dim=12, heads=2, ws=4, depth=4):
        super().__init__()
        self.conv_first = nn.Conv2d(3, dim, 3, padding=1)
        self.blocks = nn.ModuleList(
            SwinTransformerBlock(dim, heads, ws, 0 if i % 2 == 0 else ws // 2) for i in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.conv_last = nn.Conv2d(dim, 3, 3, padding=1)

    def forward(self, img):
        feat = self.conv_first(img).permute(0, 2, 3, 1)
        x = feat
        for blk in self.blocks:
            x = blk(x)
        return self.conv_last((self.norm(x) + feat).permute(0, 3, 1, 2)) + img


class ChannelNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(dim, 1, 1)), nn.Parameter(torch.zeros(dim, 1, 1))

    def forward(self, x):
        x = x - x.mean(1, keepdim=True)
        return x / (x.pow(2).mean(1, keepdim=True) + 1e-5).sqrt() * self.g + self.b


class ShiftedWindowLayer(nn.Module):
    def __init__(self, dim, heads, ws, shift, index_rows):
        super().__init__()
        self.pre, self.post = ChannelNorm(dim), ChannelNorm(dim)
        self.to_qkv, self.to_out = nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(dim, dim, 1)
        self.ffn_in, self.ffn_out = nn.Conv2d(dim, 2 * dim, 1), nn.Conv2d(2 * dim, dim, 1)
        self.bias = nn.Parameter(torch.zeros(heads, ws * ws, ws * ws))
        self.heads, self.ws, self.shift, self.index_rows = heads, ws, shift, index_rows

    def windows(self, x, heads):
        B, C, H, W = x.shape
        x = x.view(B, heads, C // heads, H // self.ws, self.ws, W // self.ws, self.ws)
        return x.permute(0, 3, 5, 1, 4, 6, 2).reshape(B, -1, heads, self.ws**2, C // heads)

    def attn_mask(self, H, W):
        region = torch.zeros(1, 1, H, W)
        cuts = (slice(0, -self.ws), slice(-self.ws, -self.shift), slice(-self.shift, None))
        label = 0
        for h in cuts:
            for w in cuts:
                if self.index_rows:
                    region[:, :, h, w] = label
                else:
                    region[:, h, w, :] = label
                label += 1
        r = self.windows(region, 1).squeeze(-1)
        return r.unsqueeze(-1) != r.unsqueeze(-2)

    def forward(self, x):
        B, C, H, W = x.shape
        y = self.pre(x)
        if self.shift:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(2, 3))
        q, k, v = (self.windows(t, self.heads) for t in self.to_qkv(y).chunk(3, dim=1))
        sim = torch.einsum("bwhid,bwhjd->bwhij", q, k) * (C // self.heads) ** -0.5 + self.bias
        if self.shift:
            sim = sim.masked_fill(self.attn_mask(H, W), -1e4)
        y = torch.einsum("bwhij,bwhjd->bwhid", sim.softmax(-1), v)
        y = y.view(B, H // self.ws, W // self.ws, self.heads, self.ws, self.ws, -1).permute(0, 3, 6, 1, 4, 2, 5)
        y = self.to_out(y.reshape(B, C, H, W))
        if self.shift:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(2, 3))
        x = x + y
        return x + self.ffn_out(F.gelu(self.ffn_in(self.post(x))))


class RestorerNCHW(nn.Module):
    def __init__(self, dim=12, heads=2, ws=4, depth=4, index_rows=False):
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, dim, 3, padding=1), nn.Conv2d(dim, 3, 3, padding=1)
        self.body = nn.Sequential(
            *[ShiftedWindowLayer(dim, heads, ws, (i % 2) * (ws // 2), index_rows) for i in range(depth)]
        )
        self.body_norm = ChannelNorm(dim)

    def forward(self, img):
        shallow = self.head(img)
        return img + self.tail(shallow + self.body_norm(self.body(shallow)))


def convert(sd):
    def col(t):
        return t[:, None, None]

    out = {
        f"{b}.{w}": sd[f"{a}.{w}"]
        for a, b in (("conv_first", "head"), ("conv_last", "tail"))
        for w in ("weight", "bias")
    }
    out["body_norm.g"], out["body_norm.b"] = col(sd["norm.weight"]), col(sd["norm.bias"])
    for i in range(4):
        s, t = f"blocks.{i}.", f"body.{i}."
        for a, b in (("norm1", "pre"), ("norm2", "post")):
            out[t + b + ".g"], out[t + b + ".b"] = col(sd[s + a + ".weight"]), col(sd[s + a + ".bias"])
        for a, b in (("attn.qkv", "to_qkv"), ("attn.proj", "to_out"), ("mlp.0", "ffn_in"), ("mlp.2", "ffn_out")):
            out[t + b + ".weight"], out[t + b + ".bias"] = sd[s + a + ".weight"][:, :, None, None], sd[s + a + ".bias"]
        out[t + "bias"] = sd[s + "attn.relative_position_bias_table"][relative_index(4)].permute(2, 0, 1)
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(5)
    original = SwinRestorer().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n and n.endswith("weight") else 0.0, 0.3)
    port = RestorerNCHW(index_rows=fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(1, 3, 8, 12),)
