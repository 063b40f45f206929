"""leejet/stable-diffusion.cpp#1707: diffusers stores the last adaLN as (scale, shift), the port splits (shift, scale).

A small single-stream diffusion transformer over latent patches.  The two halves of the final modulation weight must be
swapped when a diffusers checkpoint is loaded; the modulations inside the blocks have the same order in both.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def timestep_embedding(t: Tensor, dim: int) -> Tensor:
    freqs = torch.exp(-math.log(10000.0) * torch.arange(dim // 2).float() / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class AdaLayerNormZeroSingle(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.silu = nn.SiLU()
        self.linear = nn.Linear(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)

    def forward(self, x: Tensor, emb: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale, gate = self.linear(self.silu(emb)).chunk(3, dim=1)
        return self.norm(x) * (1 + scale[:, None]) + shift[:, None], gate


class AdaLayerNormContinuous(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.silu = nn.SiLU()
        self.linear = nn.Linear(dim, 2 * dim)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)

    def forward(self, x: Tensor, conditioning: Tensor) -> Tensor:
        scale, shift = torch.chunk(self.linear(self.silu(conditioning)), 2, dim=1)
        return self.norm(x) * (1 + scale)[:, None, :] + shift[:, None, :]


class SingleTransformerBlock(nn.Module):
    def __init__(self, dim: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = AdaLayerNormZeroSingle(dim)
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.proj_mlp = nn.Linear(dim, mlp)
        self.act_mlp = nn.GELU(approximate="tanh")
        self.proj_out = nn.Linear(dim + mlp, dim)

    def forward(self, x: Tensor, temb: Tensor) -> Tensor:
        normed, gate = self.norm(x, temb)
        q, k, v = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.to_q, self.to_k, self.to_v)
        )
        attn = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        hidden = torch.cat([attn, self.act_mlp(self.proj_mlp(normed))], dim=2)
        return x + gate.unsqueeze(1) * self.proj_out(hidden)


class LatentTransformer(nn.Module):
    def __init__(self, channels: int = 4, patch: int = 2, dim: int = 24, heads: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.dim, self.patch = dim, patch
        self.x_embedder = nn.Conv2d(channels, dim, patch, stride=patch)
        self.pos_embed = nn.Parameter(torch.randn(1, 16, dim) * 0.3)
        self.time_linear_1 = nn.Linear(dim, dim)
        self.time_linear_2 = nn.Linear(dim, dim)
        self.blocks = nn.ModuleList(SingleTransformerBlock(dim, heads, 2 * dim) for _ in range(depth))
        self.norm_out = AdaLayerNormContinuous(dim)
        self.proj_out = nn.Linear(dim, patch * patch * channels)

    def forward(self, latent: Tensor, timestep: Tensor) -> Tensor:
        b, c, h, w = latent.shape
        x = self.x_embedder(latent).flatten(2).transpose(1, 2) + self.pos_embed
        temb = self.time_linear_2(F.silu(self.time_linear_1(timestep_embedding(timestep, self.dim))))
        for block in self.blocks:
            x = block(x, temb)
        x = self.proj_out(self.norm_out(x, temb))
        x = x.reshape(b, h // self.patch, w // self.patch, self.patch, self.patch, c)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(b, c, h, w)


class LastLayer(nn.Module):
    def __init__(self, hidden: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, out)
        self.adaLN_modulation_1 = nn.Linear(hidden, 2 * hidden)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        m = self.adaLN_modulation_1(F.silu(c)).unsqueeze(1)
        shift, scale = m[..., : x.shape[-1]], m[..., x.shape[-1] :]
        normed = F.layer_norm(x, x.shape[-1:], eps=1e-6)
        return self.linear(torch.addcmul(shift, normed, scale + 1.0))


class SingleStreamBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.heads, self.hidden = heads, hidden
        self.linear1 = nn.Linear(hidden, 3 * hidden + mlp)
        self.linear2 = nn.Linear(hidden + mlp, hidden)
        self.modulation_lin = nn.Linear(hidden, 3 * hidden)

    def forward(self, x: Tensor, vec: Tensor) -> Tensor:
        shift, scale, gate = self.modulation_lin(F.silu(vec)).unsqueeze(1).chunk(3, dim=-1)
        x_mod = F.layer_norm(x, (self.hidden,), eps=1e-6) * (1 + scale) + shift
        qkv, mlp = self.linear1(x_mod).tensor_split([3 * self.hidden], dim=-1)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
        attn = (weights @ v).transpose(1, 2).flatten(2)
        return x + gate * self.linear2(torch.cat([attn, F.gelu(mlp, approximate="tanh")], dim=-1))


class FluxRunner(nn.Module):
    def __init__(self, channels: int, patch: int, hidden: int, heads: int, depth: int) -> None:
        super().__init__()
        self.hidden, self.patch, self.channels = hidden, patch, channels
        self.img_in = nn.Linear(channels * patch * patch, hidden)
        self.pe = nn.Parameter(torch.empty(16, hidden))
        self.time_in = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.single_blocks = nn.ModuleList(SingleStreamBlock(hidden, heads, 2 * hidden) for _ in range(depth))
        self.final_layer = LastLayer(hidden, patch * patch * channels)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        _, c, h, w = x.shape
        img = F.unfold(x, self.patch, stride=self.patch).transpose(1, 2)
        img = self.img_in(img) + self.pe
        vec = self.time_in(timestep_embedding(t, self.hidden))
        for block in self.single_blocks:
            img = block(img, vec)
        img = self.final_layer(img, vec).unflatten(-1, (self.patch * self.patch, c)).transpose(2, 3).flatten(2)
        return F.fold(img.transpose(1, 2), (h, w), self.patch, stride=self.patch)


def swap_scale_shift(weight: Tensor) -> Tensor:
    first, second = weight.chunk(2, dim=0)
    return torch.cat([second, first], dim=0)


def convert_diffusers(state: dict[str, Tensor], depth: int, swap_final: bool) -> dict[str, Tensor]:
    out = {
        "img_in.weight": state["x_embedder.weight"].flatten(1),
        "img_in.bias": state["x_embedder.bias"],
        "pe": state["pos_embed"].squeeze(0),
    }
    for kind in ("weight", "bias"):
        out[f"time_in.0.{kind}"] = state[f"time_linear_1.{kind}"]
        out[f"time_in.2.{kind}"] = state[f"time_linear_2.{kind}"]
        out[f"final_layer.linear.{kind}"] = state[f"proj_out.{kind}"]
        modulation = state[f"norm_out.linear.{kind}"]
        out[f"final_layer.adaLN_modulation_1.{kind}"] = swap_scale_shift(modulation) if swap_final else modulation
        for i in range(depth):
            src, dst = f"blocks.{i}.", f"single_blocks.{i}."
            names = ("to_q", "to_k", "to_v", "proj_mlp")
            out[f"{dst}linear1.{kind}"] = torch.cat([state[f"{src}{name}.{kind}"] for name in names])
            out[f"{dst}linear2.{kind}"] = state[f"{src}proj_out.{kind}"]
            out[f"{dst}modulation_lin.{kind}"] = state[f"{src}norm.linear.{kind}"]
    return out


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(124)
    original = LatentTransformer().eval()
    port = FluxRunner(channels=4, patch=2, hidden=24, heads=3, depth=2).eval()
    port.load_state_dict(convert_diffusers(original.state_dict(), depth=2, swap_final=fixed))
    return original, port, (torch.randn(2, 4, 8, 8), torch.tensor([120, 730]))


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
