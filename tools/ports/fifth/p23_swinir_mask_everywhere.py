"""JingyunLiang/SwinIR#153: the shift mask is handed to every window attention, also to the blocks that do not shift.

In the regular blocks it only cuts windows at the bottom and right edge of the image.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIN, SHIFT = 4, 2


def partition(x: Tensor) -> Tensor:
    b, h, w, c = x.shape
    return x.view(b, h // WIN, WIN, w // WIN, WIN, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, WIN * WIN, c)


def merge(windows: Tensor, b: int, h: int, w: int) -> Tensor:
    x = windows.view(b, h // WIN, w // WIN, WIN, WIN, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, -1)


def shift_mask(h: int, w: int) -> Tensor:
    regions = torch.zeros(1, h, w, 1)
    cuts = (slice(0, -WIN), slice(-WIN, -SHIFT), slice(-SHIFT, None))
    for i, rows in enumerate(cuts):
        for j, cols in enumerate(cuts):
            regions[:, rows, cols] = 3 * i + j
    ids = partition(regions).squeeze(-1)
    return (ids[:, None, :] != ids[:, :, None]).float() * -100.0


def relative_index() -> Tensor:
    grid = torch.stack(torch.meshgrid(torch.arange(WIN), torch.arange(WIN), indexing="ij")).flatten(1)
    rel = grid[:, :, None] - grid[:, None, :] + WIN - 1
    return rel[0] * (2 * WIN - 1) + rel[1]


class WindowAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.randn((2 * WIN - 1) ** 2, heads) * 0.2)
        self.register_buffer("index", relative_index())
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.table[self.index].permute(2, 0, 1)
        if mask is not None:
            attn = (attn.view(-1, mask.shape[0], self.heads, t, t) + mask[:, None]).view(n, self.heads, t, t)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))


class SwinLayer(nn.Module):
    def __init__(self, dim: int, heads: int, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, _ = x.shape
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        y = self.attn(partition(y), shift_mask(h, w) if self.shift else None)
        y = merge(y, b, h, w)
        if self.shift:
            y = y.roll((self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class SwinSR(nn.Module):
    def __init__(self, dim: int = 12, heads: int = 2) -> None:
        super().__init__()
        self.conv_first = nn.Conv2d(3, dim, 3, 1, 1)
        self.layers = nn.Sequential(*[SwinLayer(dim, heads, SHIFT * (i % 2)) for i in range(2)])
        self.conv_after_body = nn.Conv2d(dim, dim, 3, 1, 1)
        self.upsample = nn.Sequential(nn.Conv2d(dim, 12, 3, 1, 1), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        shallow = self.conv_first(x)
        deep = self.layers(shallow.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.upsample(shallow + self.conv_after_body(deep))


class STL(nn.Module):
    """Swin transformer layer, tokens as a flat sequence, dense per-head bias."""

    def __init__(self, dim: int, num_heads: int, shift_size: int) -> None:
        super().__init__()
        self.num_heads, self.shift_size = num_heads, shift_size
        self.ln_a = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.to_out = nn.Linear(dim, dim)
        self.position_bias = nn.Parameter(torch.zeros(num_heads, WIN**2, WIN**2))
        self.ln_b = nn.LayerNorm(dim)
        self.ff_in = nn.Linear(dim, 2 * dim)
        self.ff_out = nn.Linear(2 * dim, dim)

    def window_msa(self, windows: Tensor, attn_mask: Tensor | None) -> Tensor:
        bias = self.position_bias.unsqueeze(0)
        if attn_mask is not None:
            bias = bias + attn_mask.repeat(windows.shape[0] // attn_mask.shape[0], 1, 1).unsqueeze(1)
        q, k, v = (
            f(windows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v)
        )
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(windows.shape[0], -1, -1, -1))
        return self.to_out(heads.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, x_size: tuple[int, int], attn_mask: Tensor | None) -> Tensor:
        b, s = x.shape[0], self.shift_size
        image = self.ln_a(x).unflatten(1, x_size)
        image = torch.roll(image, shifts=(-s, -s), dims=(1, 2))
        image = merge(self.window_msa(partition(image), attn_mask), b, *x_size)
        x = x + torch.roll(image, shifts=(s, s), dims=(1, 2)).flatten(1, 2)
        return x + self.ff_out(F.gelu(self.ff_in(self.ln_b(x))))


class SwinIRPort(nn.Module):
    def __init__(self, embed_dim: int = 12, num_heads: int = 2, mask_all: bool = False) -> None:
        super().__init__()
        self.mask_all = mask_all
        self.head = nn.Conv2d(3, embed_dim, 3, padding=1)
        self.rstb = nn.ModuleList([STL(embed_dim, num_heads, 0), STL(embed_dim, num_heads, SHIFT)])
        self.tail = nn.Conv2d(embed_dim, embed_dim, 3, padding=1)
        self.before_shuffle = nn.Conv2d(embed_dim, 12, 3, padding=1)

    def forward(self, lq: Tensor) -> Tensor:
        x_size = (lq.shape[2], lq.shape[3])
        attn_mask = shift_mask(*x_size)
        feat = self.head(lq)
        tokens = feat.flatten(2).mT
        for layer in self.rstb:
            needs_mask = self.mask_all or layer.shift_size > 0
            tokens = layer(tokens, x_size, attn_mask if needs_mask else None)
        body = tokens.mT.unflatten(2, x_size)
        return F.pixel_shuffle(self.before_shuffle(feat + self.tail(body)), 2)


@torch.no_grad()
def convert(src: SwinSR, dst: SwinIRPort) -> None:
    pairs = [(src.conv_first, dst.head), (src.conv_after_body, dst.tail), (src.upsample[0], dst.before_shuffle)]
    for a, b in zip(src.layers, dst.rstb):
        for leaf in ("weight", "bias"):
            for part, target in zip(getattr(a.attn.qkv, leaf).chunk(3), (b.to_q, b.to_k, b.to_v)):
                getattr(target, leaf).copy_(part)
        b.position_bias.copy_(a.attn.table[a.attn.index].permute(2, 0, 1))
        pairs += [(a.attn.proj, b.to_out), (a.norm1, b.ln_a), (a.norm2, b.ln_b)]
        pairs += [(a.mlp[0], b.ff_in), (a.mlp[2], b.ff_out)]
    for a, b in pairs:
        b.load_state_dict(a.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(153)
    original = SwinSR()
    with torch.no_grad():
        for layer in original.layers:
            layer.attn.qkv.weight.mul_(2.5)
    port = SwinIRPort(mask_all=not fixed)
    convert(original, port)
    return original.eval(), port.eval(), (torch.rand(2, 3, 8, 12),)
