"""NVIDIA/physicsnemo#1399: the cyclic shift of the earth window block rolls longitude by the latitude shift.

Windows are not square (2 x 6), so the two shifts differ; the roll back after the attention is right.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAT, LON = 8, 12
WINDOW = (2, 6)
SHIFT = (1, 3)


def latitude_mask() -> Tensor:
    """Windows wrap around in longitude; over the poles they must not. (rows, tokens, tokens)"""
    label = torch.zeros(LAT)
    label[-WINDOW[0] : -SHIFT[0]] = 1
    label[-SHIFT[0] :] = 2
    tokens = label.view(LAT // WINDOW[0], WINDOW[0], 1).expand(-1, -1, WINDOW[1]).flatten(1)
    return torch.where(tokens[:, :, None] == tokens[:, None, :], 0.0, -100.0)


class WindowAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        tokens = WINDOW[0] * WINDOW[1]
        self.bias = nn.Parameter(torch.randn(LAT // WINDOW[0], heads, tokens, tokens) * 0.3)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, rows, cols, t, c = x.shape
        q, k, v = self.qkv(x).view(b, rows, cols, t, 3, self.heads, -1).permute(4, 0, 1, 2, 5, 3, 6)
        logits = q @ k.transpose(-1, -2) * (c // self.heads) ** -0.5 + self.bias[:, None]
        if mask is not None:
            logits = logits + mask[:, None, None]
        return self.proj((logits.softmax(-1) @ v).transpose(3, 4).reshape(b, rows, cols, t, c))


class EarthBlock(nn.Module):
    def __init__(self, dim: int, heads: int, shifted: bool) -> None:
        super().__init__()
        self.shifted = shifted
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.register_buffer("mask", latitude_mask() if shifted else None)

    def forward(self, x: Tensor) -> Tensor:
        b, _, _, c = x.shape
        h = self.norm1(x)
        if self.shifted:
            h = torch.roll(h, (-SHIFT[0], -SHIFT[1]), dims=(1, 2))
        h = h.view(b, LAT // WINDOW[0], WINDOW[0], LON // WINDOW[1], WINDOW[1], c)
        h = h.permute(0, 1, 3, 2, 4, 5).flatten(3, 4)
        h = self.attn(h, self.mask)
        h = h.unflatten(3, WINDOW).permute(0, 1, 3, 2, 4, 5).reshape(b, LAT, LON, c)
        if self.shifted:
            h = torch.roll(h, SHIFT, dims=(1, 2))
        x = x + h
        return x + self.mlp(self.norm2(x))


class Weather(nn.Module):
    def __init__(self, fields: int = 4, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.embed = nn.Conv2d(fields, dim, 2, 2)
        self.blocks = nn.ModuleList([EarthBlock(dim, heads, shifted=bool(i % 2)) for i in range(4)])
        self.recover = nn.ConvTranspose2d(dim, fields, 2, 2)

    def forward(self, state: Tensor) -> Tensor:
        x = self.embed(state).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x)
        return self.recover(x.permute(0, 3, 1, 2))


def window_partition(x: Tensor) -> Tensor:
    """(B, lat, lon, C) -> (B * windows, tokens, C)"""
    b, lat, lon, c = x.shape
    x = x.reshape(b, lat // WINDOW[0], WINDOW[0], lon // WINDOW[1], WINDOW[1], c)
    return x.swapaxes(2, 3).reshape(-1, WINDOW[0] * WINDOW[1], c)


def window_reverse(windows: Tensor, b: int) -> Tensor:
    x = windows.reshape(b, LAT // WINDOW[0], LON // WINDOW[1], *WINDOW, -1)
    return x.swapaxes(2, 3).reshape(b, LAT, LON, -1)


class Transformer2DBlock(nn.Module):
    def __init__(self, dim: int, num_heads: int, shift_size: tuple[int, int], roll_size: tuple[int, int]) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.shift_size = shift_size
        self.roll_size = roll_size
        self.norm1 = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, dim)
        self.to_kv = nn.Linear(dim, 2 * dim)
        self.to_out = nn.Linear(dim, dim)
        tokens = WINDOW[0] * WINDOW[1]
        self.earth_bias = nn.Parameter(torch.empty(LAT // WINDOW[0], num_heads, tokens, tokens))
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def attend(self, windows: Tensor, b: int) -> Tensor:
        bias = self.earth_bias
        if any(self.shift_size):
            bias = bias + latitude_mask()[:, None]
        bias = bias.repeat_interleave(LON // WINDOW[1], dim=0).repeat(b, 1, 1, 1)
        q = self.to_q(windows)
        k, v = self.to_kv(windows).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        b = x.shape[0]
        shift_lat, shift_lon = self.roll_size
        shifted_x = torch.roll(self.norm1(x), shifts=(-shift_lat, -shift_lon), dims=(1, 2))
        shifted_x = window_reverse(self.attend(window_partition(shifted_x), b), b)
        x = x + torch.roll(shifted_x, shifts=self.shift_size, dims=(1, 2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class WeatherPort(nn.Module):
    def __init__(self, roll_size: tuple[int, int], fields: int = 4, dim: int = 16, num_heads: int = 2) -> None:
        super().__init__()
        self.patch_in = nn.Linear(4 * fields, dim)
        none = (0, 0)
        self.layer = nn.Sequential(
            *[
                Transformer2DBlock(dim, num_heads, SHIFT if i % 2 else none, roll_size if i % 2 else none)
                for i in range(4)
            ]
        )
        self.patch_out = nn.Linear(dim, 4 * fields)

    def forward(self, fields: Tensor) -> Tensor:
        x = self.patch_in(F.pixel_unshuffle(fields, 2).permute(0, 2, 3, 1))
        return F.pixel_shuffle(self.patch_out(self.layer(x)).permute(0, 3, 1, 2), 2)


@torch.no_grad()
def convert(src: Weather, dst: WeatherPort) -> None:
    dst.patch_in.weight.copy_(src.embed.weight.flatten(1))
    dst.patch_in.bias.copy_(src.embed.bias)
    dst.patch_out.weight.copy_(src.recover.weight.flatten(1).T)
    dst.patch_out.bias.copy_(src.recover.bias.repeat_interleave(4))
    for a, b in zip(src.blocks, dst.layer):
        dim = a.norm1.normalized_shape[0]
        for leaf in ("weight", "bias"):
            qkv = getattr(a.attn.qkv, leaf)
            getattr(b.to_q, leaf).copy_(qkv[:dim])
            getattr(b.to_kv, leaf).copy_(qkv[dim:])
        b.earth_bias.copy_(a.attn.bias)
        same = [(a.attn.proj, b.to_out), (a.mlp[0], b.fc1), (a.mlp[2], b.fc2), (a.norm1, b.norm1), (a.norm2, b.norm2)]
        for m, n in same:
            n.load_state_dict(m.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(1399)
    original = Weather()
    port = WeatherPort(roll_size=SHIFT if fixed else (SHIFT[0], SHIFT[0]))
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 4, 2 * LAT, 2 * LON),)
