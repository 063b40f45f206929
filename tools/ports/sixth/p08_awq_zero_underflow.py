"""ModelCloud/GPTQModel#2350: repacking AWQ weights subtracts 1 from zero points, and a zero point of 0 turns into 15.

The exllama layout stores zero - 1 in four bits and adds 1 again when it dequantises; for zero points of 0 the stored
nibble wraps around.  Asymmetric 4-bit groups with only positive weights have such zero points.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BITS, GROUP = 4, 8
NIBBLES = 32 // BITS


def quantise(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per group of inputs: integers (out, in), zero points and scales (out, in / GROUP)."""
    grouped = weight.view(weight.shape[0], -1, GROUP)
    low = grouped.amin(-1).clamp(max=0)
    high = grouped.amax(-1).clamp(min=0)
    scales = (high - low).clamp(min=1e-5) / (2**BITS - 1)
    zeros = (-low / scales).round().clamp(0, 15)
    ints = (grouped / scales.unsqueeze(-1)).round() + zeros.unsqueeze(-1)
    return ints.clamp(0, 15).view_as(weight).int(), zeros.int(), scales


class AwqLinear(nn.Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        dense = torch.randn(out_features, in_features) * in_features**-0.5
        sign = torch.rand(out_features, in_features // GROUP).lt(0.35).repeat_interleave(GROUP, dim=1)
        ints, zeros, scales = quantise(torch.where(sign, dense.abs(), dense))
        self.register_buffer("qweight", ints)
        self.register_buffer("qzeros", zeros)
        self.register_buffer("scales", scales)
        self.bias = nn.Parameter(torch.randn(out_features) * 0.1) if bias else None

    def dequantize(self) -> Tensor:
        zeros = self.qzeros.repeat_interleave(GROUP, dim=1)
        return (self.qweight - zeros) * self.scales.repeat_interleave(GROUP, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.dequantize(), self.bias)


class GatedBlock(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate_proj = AwqLinear(dim, hidden, bias=False)
        self.up_proj = AwqLinear(dim, hidden, bias=False)
        self.down_proj = AwqLinear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class AwqRegressor(nn.Module):
    def __init__(self, features: int = 16, dim: int = 24, hidden: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embed = AwqLinear(features, dim)
        self.blocks = nn.ModuleList(GatedBlock(dim, hidden) for _ in range(depth))
        self.readout = nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.readout(x)


def pack_int32(values: Tensor) -> Tensor:
    """Eight nibbles along the last axis to one int32 (kept in int64 here); the size is padded to a multiple of 8."""
    values = F.pad(values, (0, -values.shape[-1] % NIBBLES)).long().unflatten(-1, (-1, NIBBLES))
    shifts = torch.arange(0, 32, BITS)
    return ((values & 0xF) << shifts).sum(-1)


def unpack_int32(packed: Tensor, size: int) -> Tensor:
    shifts = torch.arange(0, 32, BITS)
    return ((packed.unsqueeze(-1) >> shifts) & 0xF).flatten(-2)[..., :size]


class ExllamaLinear(nn.Module):
    """Weights packed along the input axis as (in / 8, out), zero points along the output axis as (groups, out / 8)."""

    def __init__(self, source: AwqLinear, zero_offset: int) -> None:
        super().__init__()
        self.out_features, self.in_features = source.qweight.shape
        self.zero_offset = zero_offset
        self.register_buffer("q_weight", pack_int32(source.qweight).T.contiguous())
        self.register_buffer("q_zeros", pack_int32(source.qzeros.T - zero_offset))
        self.register_buffer("q_scales", source.scales.T.contiguous())
        self.bias = None if source.bias is None else nn.Parameter(source.bias.detach().clone())

    def reconstruct(self) -> Tensor:
        codes = unpack_int32(self.q_weight.T, self.in_features).T
        zeros = unpack_int32(self.q_zeros, self.out_features) + self.zero_offset
        group = torch.arange(self.in_features) // GROUP
        return self.q_scales[group] * (codes - zeros[group])

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.reconstruct()
        return y if self.bias is None else y + self.bias


class ExllamaBlock(nn.Module):
    def __init__(self, source: GatedBlock, zero_offset: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(source.norm.normalized_shape)
        self.ln.load_state_dict(source.norm.state_dict())
        self.w_gate = ExllamaLinear(source.gate_proj, zero_offset)
        self.w_up = ExllamaLinear(source.up_proj, zero_offset)
        self.w_down = ExllamaLinear(source.down_proj, zero_offset)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln(x)
        gate = self.w_gate(h)
        return x + self.w_down(gate * torch.sigmoid(gate) * self.w_up(h))


class ExllamaRegressor(nn.Module):
    def __init__(self, source: AwqRegressor, zero_offset: int) -> None:
        super().__init__()
        self.stem = ExllamaLinear(source.embed, zero_offset)
        self.body = nn.Sequential(*(ExllamaBlock(block, zero_offset) for block in source.blocks))
        self.out = nn.Linear(source.readout.in_features, source.readout.out_features)
        self.out.load_state_dict(source.readout.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(self.stem(x)))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(108)
    original = AwqRegressor().eval()
    port = ExllamaRegressor(original, zero_offset=0 if fixed else 1).eval()
    return original, port, (torch.randn(5, 16),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
