"""IDEA-Research/DN-DETR#51: the half pixel offset of the sine position embedding is taken outside of the division.

(y - 0.5) / last * 2 pi and (y / last - 0.5) * 2 pi differ by a phase; both have the same range and shape.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PositionEmbeddingSine(nn.Module):
    def __init__(self, num_pos_feats: int, temperature: float = 20.0) -> None:
        super().__init__()
        self.num_pos_feats = num_pos_feats
        self.temperature = temperature

    def forward(self, padding: Tensor) -> Tensor:
        valid = ~padding
        y = valid.cumsum(1, dtype=torch.float32)
        x = valid.cumsum(2, dtype=torch.float32)
        y = (y - 0.5) / y[:, -1:, :].clamp(min=1.0) * 2 * math.pi
        x = (x - 0.5) / x[:, :, -1:].clamp(min=1.0) * 2 * math.pi
        dim_t = torch.arange(self.num_pos_feats, dtype=torch.float32)
        dim_t = self.temperature ** (2 * (dim_t // 2) / self.num_pos_feats)
        parts = []
        for p in (y, x):
            p = p[..., None] / dim_t
            parts.append(torch.stack((p[..., 0::2].sin(), p[..., 1::2].cos()), dim=4).flatten(3))
        return torch.cat(parts, dim=3).permute(0, 3, 1, 2)


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads)
        self.linear1 = nn.Linear(dim, 2 * dim)
        self.linear2 = nn.Linear(2 * dim, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, src: Tensor, padding: Tensor, pos: Tensor) -> Tensor:
        q = src + pos
        src = self.norm1(src + self.self_attn(q, q, src, key_padding_mask=padding, need_weights=False)[0])
        return self.norm2(src + self.linear2(F.relu(self.linear1(src))))


class DetrEncoder(nn.Module):
    def __init__(self, dim: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.input_proj = nn.Conv2d(6, dim, 1)
        self.position = PositionEmbeddingSine(dim // 2)
        self.layers = nn.ModuleList([EncoderLayer(dim, heads) for _ in range(layers)])
        self.class_embed = nn.Linear(dim, 5)
        self.bbox_embed = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, features: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        src = self.input_proj(features).flatten(2).permute(2, 0, 1)
        pos = self.position(padding).flatten(2).permute(2, 0, 1)
        for layer in self.layers:
            src = layer(src, padding.flatten(1), pos)
        src = src.transpose(0, 1)
        return self.class_embed(src), self.bbox_embed(src).sigmoid()


class SinePositionalEncoding(nn.Module):
    def __init__(self, num_feats: int, temperature: float, inside: float, outside: float) -> None:
        super().__init__()
        self.inside, self.outside = inside, outside
        bands = temperature ** (-torch.arange(0, num_feats, 2) / num_feats)
        self.register_buffer("bands", bands, persistent=False)

    def axis(self, count: Tensor, total: Tensor) -> Tensor:
        unit = (count + self.inside) / total.clamp(min=1.0) + self.outside
        phase = (2.0 * math.pi) * unit.unsqueeze(-1) * self.bands
        return torch.stack([torch.sin(phase), torch.cos(phase)], dim=-1).flatten(-2)

    def forward(self, key_padding: Tensor) -> Tensor:
        keep = 1.0 - key_padding.float()
        rows, cols = keep.cumsum(dim=1), keep.cumsum(dim=2)
        by_row = self.axis(rows, keep.sum(dim=1, keepdim=True))
        by_col = self.axis(cols, keep.sum(dim=2, keepdim=True))
        return torch.cat([by_row, by_col], dim=-1).flatten(1, 2)


class Block(nn.Module):
    """Batch first, own attention."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qk = nn.Linear(width, 2 * width)
        self.v = nn.Linear(width, width)
        self.o = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.ln1 = nn.LayerNorm(width)
        self.ln2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, key_padding: Tensor, pos: Tensor) -> Tensor:
        q, k = self.qk(x + pos).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, self.v(x)))
        allowed = ~key_padding[:, None, None, :]
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2)
        x = self.ln1(x + self.o(attended))
        return self.ln2(x + self.mlp(x))


class DetectorPort(nn.Module):
    def __init__(self, width: int = 16, inside: float = -0.5, outside: float = 0.0) -> None:
        super().__init__()
        self.neck = nn.Linear(6, width)
        self.pos = SinePositionalEncoding(width // 2, 20.0, inside, outside)
        self.encoder = nn.ModuleList([Block(width, 2) for _ in range(2)])
        self.cls = nn.Linear(width, 5)
        self.reg = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, 4)])

    def forward(self, feats: Tensor, key_padding: Tensor) -> tuple[Tensor, Tensor]:
        x = self.neck(feats.flatten(2).mT)
        pos = self.pos(key_padding)
        for block in self.encoder:
            x = block(x, key_padding.flatten(1), pos)
        return self.cls(x), torch.sigmoid(self.reg[1](self.reg[0](x).clamp(min=0)))


@torch.no_grad()
def convert(src: DetrEncoder, dst: DetectorPort) -> None:
    dst.neck.weight.copy_(src.input_proj.weight.flatten(1))
    dst.neck.bias.copy_(src.input_proj.bias)
    pairs = [(src.class_embed, dst.cls), (src.bbox_embed[0], dst.reg[0]), (src.bbox_embed[2], dst.reg[1])]
    for a, b in zip(src.layers, dst.encoder):
        width = a.self_attn.embed_dim
        for old, leaf in ((a.self_attn.in_proj_weight, "weight"), (a.self_attn.in_proj_bias, "bias")):
            getattr(b.qk, leaf).copy_(old[: 2 * width])
            getattr(b.v, leaf).copy_(old[2 * width :])
        pairs += [(a.self_attn.out_proj, b.o), (a.linear1, b.mlp[0]), (a.linear2, b.mlp[2])]
        pairs += [(a.norm1, b.ln1), (a.norm2, b.ln2)]
    for a, b in pairs:
        b.load_state_dict(a.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(51)
    original = DetrEncoder()
    for layer in original.layers:
        nn.init.normal_(layer.self_attn.in_proj_weight, std=0.4)
    port = DetectorPort(inside=-0.5, outside=0.0) if fixed else DetectorPort(inside=0.0, outside=-0.5)
    convert(original, port)
    padding = torch.zeros(2, 5, 7, dtype=torch.bool)
    padding[1, 4:] = True
    padding[1, :, 5:] = True
    return original.eval(), port.eval(), (torch.randn(2, 6, 5, 7), padding)
