"""Tencent/ncnn#6833: the fused rotary op reads only the first half of cos/sin and uses it for both halves.

Right for text, where both halves are the same; the vision tower has height angles first and width angles second.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GRID = (3, 5)


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class VisionRotary(nn.Module):
    def __init__(self, head_dim: int, theta: float = 100.0) -> None:
        super().__init__()
        quarter = head_dim // 2
        self.register_buffer("inv_freq", theta ** (-torch.arange(quarter) / quarter), persistent=False)

    def forward(self) -> tuple[Tensor, Tensor]:
        rows, cols = torch.meshgrid(torch.arange(GRID[0]), torch.arange(GRID[1]), indexing="ij")
        angles = torch.cat([p.flatten()[:, None] * self.inv_freq for p in (rows, cols)], dim=-1)
        return angles.cos(), angles.sin()


class VisionAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(2))


class VisionBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(dim, eps=1e-6)
        self.attn = VisionAttention(dim, heads)
        self.norm2 = nn.RMSNorm(dim, eps=1e-6)
        self.gate_proj = nn.Linear(dim, 2 * dim)
        self.up_proj = nn.Linear(dim, 2 * dim)
        self.down_proj = nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class VisionTower(nn.Module):
    def __init__(self, dim: int = 32, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, 4)
        self.rotary = VisionRotary(dim // heads)
        self.blocks = nn.ModuleList([VisionBlock(dim, heads) for _ in range(depth)])
        self.merger = nn.Linear(dim, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embed(pixels).flatten(2).transpose(1, 2)
        cos, sin = self.rotary()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.merger(x)


class RotaryEmbed(nn.Module):
    """Fused op: out = (x0 cos0 - x1 sin0, x1 cos1 + x0 sin1), caches of full head width."""

    def __init__(self, full_width: bool) -> None:
        super().__init__()
        self.full_width = full_width

    def forward(self, x: Tensor, cos_cache: Tensor, sin_cache: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        x0, x1 = x[..., :half], x[..., half:]
        cos0, sin0 = cos_cache[:, :half], sin_cache[:, :half]
        cos1, sin1 = (cos_cache[:, half:], sin_cache[:, half:]) if self.full_width else (cos0, sin0)
        return torch.cat([x0 * cos0 - x1 * sin0, x1 * cos1 + x0 * sin1], dim=-1)


class MultiHeadSdpa(nn.Module):
    def __init__(self, width: int, num_heads: int, full_width: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.rope = RotaryEmbed(full_width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.num_heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, cos_cache: Tensor, sin_cache: Tensor) -> Tensor:
        q = self.rope(self.split(self.query(x)), cos_cache, sin_cache)
        k = self.rope(self.split(self.key(x)), cos_cache, sin_cache)
        weights = torch.softmax(torch.matmul(q, k.mT) / q.shape[-1] ** 0.5, dim=-1)
        return self.out(torch.matmul(weights, self.split(self.value(x))).transpose(1, 2).flatten(2))


class NcnnTower(nn.Module):
    def __init__(self, width: int = 32, num_heads: int = 2, depth: int = 2, full_width: bool = True) -> None:
        super().__init__()
        self.embed = nn.Linear(48, width)
        angles = torch.outer(torch.arange(max(GRID)).float(), 100.0 ** (-torch.arange(8) / 8))
        table = torch.cat([angles.repeat_interleave(GRID[1], 0)[: GRID[0] * GRID[1]], angles.repeat(GRID[0], 1)], 1)
        self.register_buffer("cos_cache", table.cos(), persistent=False)
        self.register_buffer("sin_cache", table.sin(), persistent=False)
        self.attn = nn.ModuleList([MultiHeadSdpa(width, num_heads, full_width) for _ in range(depth)])
        self.gain = nn.ParameterList([torch.ones(width) for _ in range(2 * depth)])
        self.gate_up = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(depth)])
        self.output = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.embed(F.unfold(image, kernel_size=4, stride=4).mT)
        for i, attn in enumerate(self.attn):
            normed = F.rms_norm(x, x.shape[-1:], self.gain[2 * i], 1e-6)
            x = x + attn(normed, self.cos_cache, self.sin_cache)
            normed = F.rms_norm(x, x.shape[-1:], self.gain[2 * i + 1], 1e-6)
            gate, up = self.gate_up[i](normed).chunk(2, dim=-1)
            x = x + self.down[i](F.silu(gate) * up)
        return self.output(x)


@torch.no_grad()
def convert(src: VisionTower, dst: NcnnTower) -> None:
    dst.embed.weight.copy_(src.patch_embed.weight.flatten(1))
    dst.embed.bias.copy_(src.patch_embed.bias)
    dst.output.load_state_dict(src.merger.state_dict())
    for i, (block, attn) in enumerate(zip(src.blocks, dst.attn)):
        for leaf in ("weight", "bias"):
            parts = getattr(block.attn.qkv, leaf).chunk(3)
            for part, linear in zip(parts, (attn.query, attn.key, attn.value)):
                getattr(linear, leaf).copy_(part)
            fused = torch.cat([getattr(block.gate_proj, leaf), getattr(block.up_proj, leaf)])
            getattr(dst.gate_up[i], leaf).copy_(fused)
        attn.out.load_state_dict(block.attn.proj.state_dict())
        dst.down[i].load_state_dict(block.down_proj.state_dict())
        dst.gain[2 * i].copy_(block.norm1.weight)
        dst.gain[2 * i + 1].copy_(block.norm2.weight)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(6833)
    original = VisionTower()
    with torch.no_grad():
        for block in original.blocks:
            block.attn.qkv.weight.mul_(2.0)
            block.norm1.weight.uniform_(0.7, 1.3)
    port = NcnnTower(full_width=fixed)
    convert(original, port)
    return original.eval(), port.eval(), (torch.randn(2, 3, 4 * GRID[0], 4 * GRID[1]),)
