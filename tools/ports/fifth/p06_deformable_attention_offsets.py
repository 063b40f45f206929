"""fundamentalvision/Deformable-DETR#6: sampling offsets are (x, y) but divided by spatial shapes in (height, width).

Nothing fails on the non-square levels, the sampled points just land at other places.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHAPES = [(6, 10), (3, 5)]


class MSDeformAttn(nn.Module):
    def __init__(self, dim: int, heads: int, points: int, levels: int) -> None:
        super().__init__()
        self.heads, self.points, self.levels = heads, points, levels
        self.sampling_offsets = nn.Linear(dim, heads * levels * points * 2)
        self.attention_weights = nn.Linear(dim, heads * levels * points)
        self.value_proj = nn.Linear(dim, dim)
        self.output_proj = nn.Linear(dim, dim)

    def forward(self, query: Tensor, reference: Tensor, memory: Tensor) -> Tensor:
        n, lq, dim = query.shape
        value = self.value_proj(memory).view(n, -1, self.heads, dim // self.heads)
        offsets = self.sampling_offsets(query).view(n, lq, self.heads, self.levels, self.points, 2)
        weights = self.attention_weights(query).view(n, lq, self.heads, self.levels * self.points)
        weights = weights.softmax(-1).view(n, lq, self.heads, self.levels, self.points)
        out = query.new_zeros(n, lq, self.heads, dim // self.heads)
        start = 0
        for level, (h, w) in enumerate(SHAPES):
            image = value[:, start : start + h * w].permute(0, 2, 3, 1).reshape(n * self.heads, -1, h, w)
            start += h * w
            scale = torch.tensor([w, h], dtype=query.dtype)
            where = reference[:, :, None, None, :] + offsets[:, :, :, level] / scale
            grid = (2 * where - 1).permute(0, 2, 1, 3, 4).reshape(n * self.heads, lq, self.points, 2)
            taken = F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
            taken = taken.view(n, self.heads, -1, lq, self.points)
            out = out + torch.einsum("nhdqp,nqhp->nqhd", taken, weights[:, :, :, level])
        return self.output_proj(out.reshape(n, lq, dim))


class EncoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int, points: int) -> None:
        super().__init__()
        self.self_attn = MSDeformAttn(dim, heads, points, len(SHAPES))
        self.norm1 = nn.LayerNorm(dim)
        self.linear1 = nn.Linear(dim, 2 * dim)
        self.linear2 = nn.Linear(2 * dim, dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, src: Tensor, pos: Tensor, reference: Tensor) -> Tensor:
        src = self.norm1(src + self.self_attn(src + pos, reference, src))
        return self.norm2(src + self.linear2(F.relu(self.linear1(src))))


def centres() -> Tensor:
    parts = []
    for h, w in SHAPES:
        y, x = torch.meshgrid((torch.arange(h) + 0.5) / h, (torch.arange(w) + 0.5) / w, indexing="ij")
        parts.append(torch.stack((x.flatten(), y.flatten()), dim=-1))
    return torch.cat(parts)


class DeformableEncoder(nn.Module):
    def __init__(self, dim: int = 16, heads: int = 2, points: int = 3, layers: int = 2) -> None:
        super().__init__()
        self.level_embed = nn.Parameter(torch.randn(len(SHAPES), dim))
        self.layers = nn.ModuleList([EncoderLayer(dim, heads, points) for _ in range(layers)])

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        flat = [m.flatten(2).transpose(1, 2) for m in (fine, coarse)]
        pos = torch.cat([e.expand_as(f[:1]) for e, f in zip(self.level_embed, flat)], dim=1)
        src = torch.cat(flat, dim=1)
        reference = centres().unsqueeze(0).expand(src.shape[0], -1, -1)
        for layer in self.layers:
            src = layer(src, pos, reference)
        return src


def bilinear_gather(image: Tensor, loc: Tensor) -> Tensor:
    """image (B, C, H, W), loc (B, Q, P, 2) in [0, 1]; zeros outside, pixel centres at half integers."""
    b, c, h, w = image.shape
    x, y = loc[..., 0] * w - 0.5, loc[..., 1] * h - 0.5
    x0, y0 = x.floor(), y.floor()
    total = torch.zeros(b, c, *x.shape[1:])
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            weight = (1 - (x - xi).abs()) * (1 - (y - yi).abs())
            weight = weight * ((xi >= 0) & (xi < w) & (yi >= 0) & (yi < h))
            flat = (yi.clamp(0, h - 1) * w + xi.clamp(0, w - 1)).long().flatten(1)
            pixel = image.flatten(2).gather(2, flat.unsqueeze(1).expand(-1, c, -1)).view(b, c, *x.shape[1:])
            total = total + pixel * weight.unsqueeze(1)
    return total


class MultiScaleDeformableAttention(nn.Module):
    def __init__(self, embed_dims: int, num_heads: int, num_points: int, wh_order: bool) -> None:
        super().__init__()
        self.num_heads, self.num_points = num_heads, num_points
        self.wh_order = wh_order
        self.offsets = nn.Linear(embed_dims, num_heads * len(SHAPES) * num_points * 2)
        self.weights = nn.Linear(embed_dims, num_heads * len(SHAPES) * num_points)
        self.value = nn.Linear(embed_dims, embed_dims)
        self.output = nn.Linear(embed_dims, embed_dims)

    def forward(self, x: Tensor, x_pos: Tensor, reference_points: Tensor) -> Tensor:
        b, q, c = x.shape
        heads, levels, points = self.num_heads, len(SHAPES), self.num_points
        spatial_shapes = torch.tensor(SHAPES, dtype=x.dtype)
        normalizer = spatial_shapes.flip(-1) if self.wh_order else spatial_shapes
        offs = self.offsets(x_pos).reshape(b, q, heads, levels, points, 2)
        loc = reference_points[:, :, None, None, None] + offs / normalizer[None, None, None, :, None, :]
        attn = self.weights(x_pos).reshape(b, q, heads, -1).softmax(dim=-1)
        sizes = [h * w for h, w in SHAPES]
        samples = []
        for lvl, chunk in enumerate(self.value(x).split(sizes, dim=1)):
            image = chunk.mT.reshape(b * heads, c // heads, *SHAPES[lvl])
            where = loc[:, :, :, lvl].transpose(1, 2).reshape(b * heads, q, points, 2)
            samples.append(bilinear_gather(image, where))
        stacked = torch.cat(samples, dim=-1).reshape(b, heads, c // heads, q, levels * points)
        merged = (stacked * attn.permute(0, 2, 1, 3).unsqueeze(2)).sum(-1)
        return self.output(merged.reshape(b, c, q).mT)


class DetrEncoder(nn.Module):
    def __init__(self, embed_dims: int = 16, depth: int = 2, wh_order: bool = True) -> None:
        super().__init__()
        self.level_encoding = nn.Embedding(len(SHAPES), embed_dims)
        self.attentions = nn.ModuleList(
            [MultiScaleDeformableAttention(embed_dims, 2, 3, wh_order) for _ in range(depth)]
        )
        self.ffns = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(embed_dims, 2 * embed_dims), nn.ReLU(), nn.Linear(2 * embed_dims, embed_dims))
                for _ in range(depth)
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(embed_dims) for _ in range(2 * depth)])

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        x = torch.cat([fine.flatten(2), coarse.flatten(2)], dim=2).mT
        counts = torch.tensor([h * w for h, w in SHAPES])
        pos = self.level_encoding(torch.repeat_interleave(torch.arange(len(SHAPES)), counts))
        ref = centres().expand(x.shape[0], -1, -1)
        for i, (attn, ffn) in enumerate(zip(self.attentions, self.ffns)):
            x = self.norms[2 * i](x + attn(x, x + pos, ref))
            x = self.norms[2 * i + 1](x + ffn(x))
        return x


def convert(src: DeformableEncoder) -> dict[str, Tensor]:
    names = {
        "self_attn.sampling_offsets": "attentions.{i}.offsets",
        "self_attn.attention_weights": "attentions.{i}.weights",
        "self_attn.value_proj": "attentions.{i}.value",
        "self_attn.output_proj": "attentions.{i}.output",
        "linear1": "ffns.{i}.0",
        "linear2": "ffns.{i}.2",
    }
    state = {"level_encoding.weight": src.level_embed}
    for i, layer in enumerate(src.layers):
        for key, value in layer.state_dict().items():
            module, leaf = key.rsplit(".", 1)
            target = f"norms.{2 * i + int(module[-1]) - 1}" if module.startswith("norm") else names[module].format(i=i)
            state[f"{target}.{leaf}"] = value
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(6)
    original = DeformableEncoder()
    for layer in original.layers:
        nn.init.normal_(layer.self_attn.sampling_offsets.bias, std=1.5)
    port = DetrEncoder(wh_order=fixed)
    port.load_state_dict(convert(original))
    inputs = (torch.randn(2, 16, *SHAPES[0]), torch.randn(2, 16, *SHAPES[1]))
    return original.eval(), port.eval(), inputs
