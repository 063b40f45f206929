"""om-ai-lab/OmDet#19: the encoder attention gets (batch, tokens, dim) but was built without batch_first=True.

A single image still looks fine in shape; with two images each token attends over the batch instead of the image.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sincos_2d(h: int, w: int, dim: int) -> Tensor:
    omega = 1.0 / 10000 ** (torch.arange(dim // 4) / (dim // 4))
    y, x = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
    wx, wy = x.flatten()[:, None] * omega, y.flatten()[:, None] * omega
    return torch.cat([wx.sin(), wx.cos(), wy.sin(), wy.cos()], dim=1)


class ConvNorm(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.conv(x)))


class TransformerLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.linear1 = nn.Linear(dim, 2 * dim)
        self.linear2 = nn.Linear(2 * dim, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, src: Tensor, pos: Tensor) -> Tensor:
        q = src + pos
        src = self.norm1(src + self.self_attn(q, q, src, need_weights=False)[0])
        return self.norm2(src + self.linear2(F.gelu(self.linear1(src))))


class HybridEncoder(nn.Module):
    def __init__(self, dim: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.stem = ConvNorm(3, dim, 3, 2)
        self.down = ConvNorm(dim, dim, 3, 2)
        self.aifi = nn.ModuleList([TransformerLayer(dim, heads) for _ in range(2)])
        self.lateral = ConvNorm(dim, dim, 1)
        self.fuse = ConvNorm(2 * dim, dim, 3)
        self.score = nn.Conv2d(dim, 6, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        high = self.stem(image)
        low = self.down(high)
        b, c, h, w = low.shape
        tokens = low.flatten(2).permute(0, 2, 1)
        for layer in self.aifi:
            tokens = layer(tokens, sincos_2d(h, w, c))
        low = self.lateral(tokens.permute(0, 2, 1).reshape(b, c, h, w))
        high = self.fuse(torch.cat((F.interpolate(low, scale_factor=2.0, mode="nearest"), high), 1))
        return self.score(low), self.score(high)


class EncoderBlock(nn.Module):
    def __init__(self, d_model: int, nhead: int, **attn_args: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, nhead, **attn_args)
        self.ffn = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.GELU(), nn.Linear(2 * d_model, d_model))
        self.norms = nn.ModuleList([nn.LayerNorm(d_model), nn.LayerNorm(d_model)])

    def forward(self, src: Tensor, pos_embed: Tensor) -> Tensor:
        query = key = src + pos_embed
        attended, _ = self.attention(query, key, value=src)
        src = self.norms[0](src + attended)
        return self.norms[1](src + self.ffn(src))


class ELAEncoder(nn.Module):
    """Convolutions carry the folded batch norm."""

    def __init__(self, d_model: int = 16, nhead: int = 4, **attn_args: bool) -> None:
        super().__init__()
        self.backbone = nn.ModuleList(
            [nn.Conv2d(3, d_model, 3, stride=2, padding=1), nn.Conv2d(d_model, d_model, 3, stride=2, padding=1)]
        )
        self.encoder = nn.ModuleList([EncoderBlock(d_model, nhead, **attn_args) for _ in range(2)])
        self.lateral_conv = nn.Conv2d(d_model, d_model, 1)
        self.fpn_block = nn.Conv2d(2 * d_model, d_model, 3, padding=1)
        self.head = nn.Conv2d(d_model, 6, 1)
        self.act = nn.SiLU()

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        feats = []
        for conv in self.backbone:
            pixel_values = self.act(conv(pixel_values))
            feats.append(pixel_values)
        c3, c4 = feats
        height, width = c4.shape[2:]
        pos_embed = sincos_2d(height, width, c4.shape[1]).unsqueeze(0)
        memory = torch.einsum("bchw->bhwc", c4).flatten(1, 2)
        for block in self.encoder:
            memory = block(memory, pos_embed)
        p4 = self.act(self.lateral_conv(memory.mT.unflatten(2, (height, width))))
        upsampled = p4.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        p3 = self.act(self.fpn_block(torch.cat([upsampled, c3], dim=1)))
        return self.head(p4), self.head(p3)


@torch.no_grad()
def convert(src: HybridEncoder, dst: ELAEncoder) -> None:
    pairs = [(src.stem, dst.backbone[0]), (src.down, dst.backbone[1])]
    pairs += [(src.lateral, dst.lateral_conv), (src.fuse, dst.fpn_block)]
    for unit, conv in pairs:
        gain = unit.norm.weight / (unit.norm.running_var + unit.norm.eps).sqrt()
        conv.weight.copy_(unit.conv.weight * gain[:, None, None, None])
        conv.bias.copy_(unit.norm.bias - unit.norm.running_mean * gain)
    dst.head.load_state_dict(src.score.state_dict())
    for a, b in zip(src.aifi, dst.encoder):
        same = [(a.self_attn, b.attention), (a.linear1, b.ffn[0]), (a.linear2, b.ffn[2])]
        for m, n in [*same, (a.norm1, b.norms[0]), (a.norm2, b.norms[1])]:
            n.load_state_dict(m.state_dict())


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(19)
    original = HybridEncoder()
    for m in original.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.2, 0.8)
    port = ELAEncoder(batch_first=True) if fixed else ELAEncoder()
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 3, 16, 24),)
