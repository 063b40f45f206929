"""282857341/nnFormer#88: window attention for CT volumes, re-implemented.

Bias tables trained with the reference are loaded into the new window attention; features of the
window differ although the table is the very same.
"""

import torch
import torch.nn.functional as F
from torch import nn

WINDOW = (2, 3, 4)


class VolumeWindowAttention(nn.Module):
    """Reference: bias table of shape (2a-1, 2b-1, 2c-1, heads)."""

    def __init__(self, dim, heads, window=WINDOW):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.randn(*[2 * w - 1 for w in window], heads))

    def bias(self):
        grid = torch.stack(torch.meshgrid(*[torch.arange(w) for w in self.window], indexing="ij"), -1).view(-1, 3)
        d = grid[:, None] - grid[None] + torch.tensor(self.window) - 1
        return self.bias_table[d[..., 0], d[..., 1], d[..., 2]].permute(2, 0, 1)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).view(B, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-1, -2) * (C // self.heads) ** -0.5 + self.bias()
        return self.proj((att.softmax(-1) @ v).transpose(1, 2).reshape(B, N, C))


class VolumeSegmenter(nn.Module):
    def __init__(self, dim=12, heads=3, classes=4):
        super().__init__()
        self.patch = nn.Conv3d(1, dim, 2, stride=2)
        self.norm1 = nn.LayerNorm(dim)
        self.attn = VolumeWindowAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 24), nn.Linear(24, dim)
        self.head = nn.ConvTranspose3d(dim, classes, 2, stride=2)

    def forward(self, vol):
        x = self.patch(vol).permute(0, 2, 3, 4, 1)
        B, S, H, W, C = x.shape
        a, b, c = WINDOW
        win = x.view(B, S // a, a, H // b, b, W // c, c, C).permute(0, 1, 3, 5, 2, 4, 6, 7)
        t = win.reshape(-1, a * b * c, C)
        t = t + self.attn(self.norm1(t))
        t = t + self.fc2(F.gelu(self.fc1(self.norm2(t))))
        x = t.view(win.shape).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(B, S, H, W, C)
        return self.head(x.permute(0, 4, 1, 2, 3))


class WindowAttention_kv(nn.Module):
    """Flat bias table with an index computed once; query and key/value projected apart."""

    def __init__(self, dim, num_heads, window_size, strides):
        super().__init__()
        self.num_heads, self.window_size = num_heads, window_size
        n = 1
        for w in window_size:
            n *= 2 * w - 1
        self.relative_position_bias_table = nn.Parameter(torch.zeros(n, num_heads))
        coords = torch.cartesian_prod(*[torch.arange(w) for w in window_size]).t()
        relative_coords = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        for i in range(3):
            relative_coords[:, :, i] += window_size[i] - 1
        relative_coords[:, :, 0] *= strides[0]
        relative_coords[:, :, 1] *= strides[1]
        self.relative_position_index = relative_coords.sum(-1)
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens):
        def split(t):
            return t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

        k, v = self.kv(tokens).chunk(2, dim=-1)
        n = tokens.size(1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        bias = bias.view(n, n, -1).permute(2, 0, 1).expand(tokens.size(0), -1, -1, -1)
        out = F.scaled_dot_product_attention(split(self.q(tokens)), split(k), split(v), attn_mask=bias)
        return self.proj(out.transpose(1, 2).flatten(2))


class NNFormerLite(nn.Module):
    def __init__(self, strides, dim=12):
        super().__init__()
        self.patch_embed = nn.Linear(8, dim)
        self.norm_a, self.norm_b = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = WindowAttention_kv(dim, 3, WINDOW, strides)
        self.mlp = nn.Sequential(nn.Linear(dim, 24), nn.GELU(), nn.Linear(24, dim))
        self.expand = nn.Linear(dim, 4 * 8, bias=False)
        self.expand_bias = nn.Parameter(torch.zeros(4))

    def forward(self, vol):
        p = vol[:, 0].unfold(1, 2, 2).unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        x = self.patch_embed(p)
        a, b, c = WINDOW
        B, S, H, W, _ = x.shape
        win = x.unfold(1, a, a).unfold(2, b, b).unfold(3, c, c)
        t = win.permute(0, 1, 2, 3, 5, 6, 7, 4).flatten(0, 3).flatten(1, 3)
        t = t + self.attention(self.norm_a(t))
        t = t + self.mlp(self.norm_b(t))
        y = self.expand(t).view(B, S // a, H // b, W // c, a, b, c, 4, 2, 2, 2)
        y = y.permute(0, 7, 1, 4, 8, 2, 5, 9, 3, 6, 10).reshape(B, 4, 2 * S, 2 * H, 2 * W)
        return y + self.expand_bias.view(1, 4, 1, 1, 1)


def convert(sd):
    dim = sd["attn.proj.bias"].numel()
    out = {"patch_embed.weight": sd["patch.weight"].flatten(1), "patch_embed.bias": sd["patch.bias"]}
    names = {"norm1": "norm_a", "norm2": "norm_b", "attn.proj": "attention.proj", "fc1": "mlp.0", "fc2": "mlp.2"}
    for k in ("weight", "bias"):
        for s, d in names.items():
            out[f"{d}.{k}"] = sd[f"{s}.{k}"]
        out["attention.q." + k], out["attention.kv." + k] = sd["attn.qkv." + k].split([dim, 2 * dim])
    out["attention.relative_position_bias_table"] = sd["attn.bias_table"].flatten(0, 2)
    out["expand.weight"] = sd["head.weight"].flatten(1).t()
    out["expand_bias"] = sd["head.bias"]
    return out


def build(fixed):
    torch.manual_seed(12)
    original = VolumeSegmenter().eval()
    with torch.no_grad():
        original.attn.qkv.weight.mul_(2.0)
        original.attn.proj.weight.mul_(2.0)
    _, b, c = WINDOW
    strides = ((2 * b - 1) * (2 * c - 1), 2 * c - 1) if fixed else (3 * b - 1, 2 * b - 1)
    port = NNFormerLite(strides).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(1, 1, 8, 12, 16),)
