"""After Project-MONAI/MONAI#8284.

The 3D Swin encoder of a medical imaging library merges 2x2x2 patches like the Swin code does
in two dimensions.  A user took weights over from an encoder whose merging enumerates all eight
corners and got other features from the second stage on.
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchMerging(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(8 * dim)
        self.reduction = nn.Linear(8 * dim, 2 * dim, bias=False)

    def forward(self, x):
        x = torch.cat([x[:, i::2, j::2, k::2] for i, j, k in itertools.product(range(2), repeat=3)], dim=-1)
        return self.reduction(self.norm(x))


class WindowBlock(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.h, self.w = heads, window
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, d, h, w, c = x.shape
        s = self.w
        y = (
            self.norm1(x)
            .view(b, d // s, s, h // s, s, w // s, s, c)
            .permute(0, 1, 3, 5, 2, 4, 6, 7)
            .reshape(-1, s**3, c)
        )
        q, k, v = self.qkv(y).view(y.shape[0], s**3, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        y = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(y.shape))
        y = y.view(b, d // s, h // s, w // s, s, s, s, c).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(b, d, h, w, c)
        x = x + y
        return x + self.mlp(self.norm2(x))


class SwinEncoder(nn.Module):
    def __init__(self, in_chans=1, dim=8, window=2, stages=2):
        super().__init__()
        self.patch_embed = nn.Conv3d(in_chans, dim, 2, 2)
        self.blocks = nn.ModuleList([WindowBlock(dim * 2**i, 2, window) for i in range(stages)])
        self.downsample = nn.ModuleList([PatchMerging(dim * 2**i) for i in range(stages)])

    def forward(self, x):
        x = self.patch_embed(x).permute(0, 2, 3, 4, 1)
        outs = []
        for blk, down in zip(self.blocks, self.downsample):
            x = down(blk(x))
            outs.append(F.layer_norm(x, x.shape[-1:]).permute(0, 4, 1, 2, 3))
        return outs


class Merging3D(nn.Module):
    order = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0), (1, 1, 1))

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim * 8)
        self.reduction = nn.Linear(dim * 8, dim * 2, bias=False)

    def forward(self, x):
        x0 = x[:, 0::2, 0::2, 0::2, :]
        x1 = x[:, 1::2, 0::2, 0::2, :]
        x2 = x[:, 0::2, 1::2, 0::2, :]
        x3 = x[:, 0::2, 0::2, 1::2, :]
        x4 = x[:, 1::2, 0::2, 1::2, :]
        x5 = x[:, 0::2, 1::2, 0::2, :]
        x6 = x[:, 0::2, 0::2, 1::2, :]
        x7 = x[:, 1::2, 1::2, 1::2, :]
        return self.reduction(self.norm(torch.cat([x0, x1, x2, x3, x4, x5, x6, x7], -1)))


class Merging3DMended(Merging3D):
    def forward(self, x):
        parts = [x[:, i::2, j::2, k::2, :] for i, j, k in self.order]
        return self.reduction(self.norm(torch.cat(parts, -1)))


def window_partition(x, s):
    x = x.unfold(1, s, s).unfold(2, s, s).unfold(3, s, s)
    return x.permute(0, 1, 2, 3, 5, 6, 7, 4).reshape(-1, s**3, x.shape[4])


def window_reverse(windows, s, dims):
    b, d, h, w = dims
    x = windows.view(b, d // s, h // s, w // s, s, s, s, -1)
    return x.permute(0, 1, 4, 2, 5, 3, 6, 7).contiguous().view(b, d, h, w, -1)


class WindowAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, _c = x.shape
        q, k, v = (t.view(b, n, self.num_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        attn = (q * self.scale @ k.mT).softmax(-1)
        return self.proj((attn @ v).transpose(1, 2).flatten(2))


class SwinTransformerBlock(nn.Module):
    def __init__(self, dim, num_heads, window_size):
        super().__init__()
        self.window_size = window_size
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), WindowAttention(dim, num_heads), nn.LayerNorm(dim)
        self.linear1, self.linear2 = nn.Linear(dim, dim * 2), nn.Linear(dim * 2, dim)

    def forward(self, x):
        y = self.attn(window_partition(self.norm1(x), self.window_size))
        x = x + window_reverse(y, self.window_size, x.shape[:4])
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


class BasicLayer(nn.Module):
    def __init__(self, dim, merging):
        super().__init__()
        self.block, self.downsample = SwinTransformerBlock(dim, 2, 2), merging(dim)

    def forward(self, x):
        return self.downsample(self.block(x))


class SwinViT(nn.Module):
    def __init__(self, merging, in_chans=1, embed_dim=8):
        super().__init__()
        self.proj = nn.Conv3d(in_chans, embed_dim, 2, stride=2)
        self.layers1, self.layers2 = BasicLayer(embed_dim, merging), BasicLayer(embed_dim * 2, merging)

    def forward(self, x):
        x0 = self.proj(x).movedim(1, -1)
        x1 = self.layers1(x0)
        x2 = self.layers2(x1)
        return [F.layer_norm(t, t.shape[-1:]).movedim(-1, 1) for t in (x1, x2)]


def convert(sd):
    ref = list(itertools.product(range(2), repeat=3))
    perm = torch.tensor([ref.index(o) for o in Merging3D.order])
    out = {}
    for k, v in sd.items():
        head, _, rest = k.partition(".")
        if head == "patch_embed":
            out["proj." + rest] = v
            continue
        i, rest = rest.split(".", 1)
        if head == "downsample":
            v = v.unflatten(-1, (8, -1)).index_select(-2, perm).flatten(-2)
            out[f"layers{int(i) + 1}.downsample.{rest}"] = v
        else:
            for a, b in (("qkv", "attn.qkv"), ("proj", "attn.proj"), ("mlp.0", "linear1"), ("mlp.2", "linear2")):
                rest = rest.replace(a, b)
            out[f"layers{int(i) + 1}.block.{rest}"] = v
    return out


def build(fixed):
    torch.manual_seed(17)
    original = SwinEncoder().eval()
    with torch.no_grad():
        for m in original.downsample:
            m.norm.weight.uniform_(0.6, 1.4), m.norm.bias.normal_(0, 0.2)
    port = SwinViT(Merging3DMended if fixed else Merging3D).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 1, 16, 16, 16),)
