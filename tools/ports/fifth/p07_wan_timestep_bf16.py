"""modelscope/DiffSynth-Studio#1025: the timestep (0..1000) is cast to bfloat16 before the sinusoidal embedding.

998.39 becomes 1000, and the modulation of every transformer block follows another time.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sinusoid(dim: int, t: Tensor) -> Tensor:
    half = dim // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(t.double(), freqs)
    return torch.cat((angles.cos(), angles.sin()), dim=1).float()


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)
        self.norm_q = nn.RMSNorm(dim, eps=1e-6)
        self.norm_k = nn.RMSNorm(dim, eps=1e-6)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.ffn = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(approximate="tanh"), nn.Linear(3 * dim, dim))
        self.modulation = nn.Parameter(torch.randn(1, 6, dim) / dim**0.5)

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = (self.modulation + e).chunk(6, dim=1)
        h = self.norm1(x) * (1 + scale1) + shift1
        b, n, d = h.shape
        q, k, v = self.norm_q(self.q(h)), self.norm_k(self.k(h)), self.v(h)
        q, k, v = (u.view(b, n, self.heads, -1).transpose(1, 2) for u in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + gate1 * self.o(a)
        return x + gate2 * self.ffn(self.norm2(x) * (1 + scale2) + shift2)


class VideoDiT(nn.Module):
    def __init__(self, dim: int = 24, heads: int = 3, depth: int = 2, freq_dim: int = 32) -> None:
        super().__init__()
        self.freq_dim = freq_dim
        self.patch_embedding = nn.Conv3d(4, dim, (1, 2, 2), (1, 2, 2))
        self.time_embedding = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, 16)
        self.head_modulation = nn.Parameter(torch.randn(1, 2, dim) / dim**0.5)

    def forward(self, latent: Tensor, timestep: Tensor) -> Tensor:
        x = self.patch_embedding(latent).flatten(2).transpose(1, 2)
        t = self.time_embedding(sinusoid(self.freq_dim, timestep))
        e = self.time_projection(t).unflatten(1, (6, -1))
        for block in self.blocks:
            x = block(x, e)
        shift, scale = (self.head_modulation + t.unsqueeze(1)).chunk(2, dim=1)
        x = F.layer_norm(x, x.shape[-1:], eps=1e-6)
        return self.head(x * (1 + scale) + shift)


class DiTBlock(nn.Module):
    """Fused projection, attention written out."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_qkv = nn.Linear(width, 3 * width)
        self.to_out = nn.Linear(width, width)
        self.q_gain = nn.Parameter(torch.ones(width))
        self.k_gain = nn.Parameter(torch.ones(width))
        self.fc1 = nn.Linear(width, 3 * width)
        self.fc2 = nn.Linear(3 * width, width)
        self.table = nn.Parameter(torch.empty(6, width))

    @staticmethod
    def rms(x: Tensor, gain: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain

    @staticmethod
    def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)

    def forward(self, x: Tensor, mod: Tensor) -> Tensor:
        mod = (self.table + mod)[:, :, None]
        q, k, v = self.to_qkv(self.modulate(x, mod[:, 0], mod[:, 1])).chunk(3, dim=-1)
        q, k, v = (
            u.unflatten(-1, (self.num_heads, -1)) for u in (self.rms(q, self.q_gain), self.rms(k, self.k_gain), v)
        )
        attn = torch.einsum("bihd,bjhd->bhij", q, k).mul(q.shape[-1] ** -0.5).softmax(dim=-1)
        x = x + mod[:, 2] * self.to_out(torch.einsum("bhij,bjhd->bihd", attn, v).flatten(2))
        hidden = self.fc1(self.modulate(x, mod[:, 3], mod[:, 4]))
        return x + mod[:, 5] * self.fc2(F.gelu(hidden, approximate="tanh"))


class StudioDiT(nn.Module):
    def __init__(self, width: int = 24, num_heads: int = 3, depth: int = 2, time_dtype: torch.dtype = torch.float32):
        super().__init__()
        self.time_dtype = time_dtype
        self.patchify = nn.Linear(16, width)
        self.time_in = nn.Linear(32, width)
        self.time_hidden = nn.Linear(width, width)
        self.time_out = nn.Linear(width, 6 * width)
        self.layers = nn.ModuleList([DiTBlock(width, num_heads) for _ in range(depth)])
        self.final = nn.Linear(width, 16)
        self.final_table = nn.Parameter(torch.empty(2, width))

    def forward(self, latent: Tensor, timestep: Tensor) -> Tensor:
        b, c, f, h, w = latent.shape
        x = latent.view(b, c, f, h // 2, 2, w // 2, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(b, -1, 4 * c)
        x = self.patchify(x)
        timestep = timestep.to(self.time_dtype)
        t = self.time_hidden(F.silu(self.time_in(sinusoid(32, timestep))))
        mod = self.time_out(F.silu(t)).view(b, 6, -1)
        for layer in self.layers:
            x = layer(x, mod)
        shift, scale = (self.final_table + t[:, None])[:, :, None].unbind(1)
        return self.final(DiTBlock.modulate(x, shift, scale))


@torch.no_grad()
def convert(src: VideoDiT, dst: StudioDiT) -> None:
    dst.patchify.weight.copy_(src.patch_embedding.weight.flatten(1))
    dst.patchify.bias.copy_(src.patch_embedding.bias)
    simple = [(src.time_embedding[0], dst.time_in), (src.time_embedding[2], dst.time_hidden)]
    simple += [(src.time_projection[1], dst.time_out), (src.head, dst.final)]
    for a, b in zip(src.blocks, dst.layers):
        b.to_qkv.weight.copy_(torch.cat([a.q.weight, a.k.weight, a.v.weight]))
        b.to_qkv.bias.copy_(torch.cat([a.q.bias, a.k.bias, a.v.bias]))
        b.q_gain.copy_(a.norm_q.weight)
        b.k_gain.copy_(a.norm_k.weight)
        b.table.copy_(a.modulation[0])
        simple += [(a.o, b.to_out), (a.ffn[0], b.fc1), (a.ffn[2], b.fc2)]
    for a, b in simple:
        b.load_state_dict(a.state_dict())
    dst.final_table.copy_(src.head_modulation[0])


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(1025)
    original = VideoDiT()
    port = StudioDiT(time_dtype=torch.float32 if fixed else torch.bfloat16)
    convert(original, port)
    latent = torch.randn(2, 4, 2, 4, 4)
    return original.eval(), port.eval(), (latent, torch.tensor([998.3897, 937.5001]))
