"""invoke-ai/InvokeAI#7708: the last adaLN of Flux is (shift, scale), in the diffusers layout it is (scale, shift).

The conversion has to swap the two halves of that one projection, and did not.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Modulation(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.lin = nn.Linear(dim, 3 * dim)

    def forward(self, vec: Tensor) -> tuple[Tensor, ...]:
        return self.lin(F.silu(vec))[:, None, :].chunk(3, dim=-1)


class SingleStreamBlock(nn.Module):
    """Attention and MLP in parallel from one fused projection."""

    def __init__(self, dim: int, heads: int, ratio: int = 2) -> None:
        super().__init__()
        self.heads, self.hidden = heads, ratio * dim
        self.linear1 = nn.Linear(dim, 3 * dim + self.hidden)
        self.linear2 = nn.Linear(dim + self.hidden, dim)
        self.pre_norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.modulation = Modulation(dim)

    def forward(self, x: Tensor, vec: Tensor) -> Tensor:
        shift, scale, gate = self.modulation(vec)
        qkv, mlp = torch.split(
            self.linear1((1 + scale) * self.pre_norm(x) + shift), [3 * x.shape[-1], self.hidden], dim=-1
        )
        b, n, _ = qkv.shape
        q, k, v = qkv.view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, -1)
        return x + gate * self.linear2(torch.cat((attn, F.gelu(mlp, approximate="tanh")), 2))


class LastLayer(nn.Module):
    def __init__(self, dim: int, out: int) -> None:
        super().__init__()
        self.norm_final = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(dim, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 2 * dim))

    def forward(self, x: Tensor, vec: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(vec).chunk(2, dim=1)
        x = (1 + scale[:, None, :]) * self.norm_final(x) + shift[:, None, :]
        return self.linear(x)


def timestep_embedding(t: Tensor, dim: int) -> Tensor:
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, dtype=torch.float32) / (dim // 2))
    args = 1000.0 * t[:, None] * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class MiniFlux(nn.Module):
    def __init__(self, dim: int = 24, heads: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.img_in = nn.Linear(8, dim)
        self.txt_in = nn.Linear(10, dim)
        self.time_in = nn.Sequential(nn.Linear(16, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.single_blocks = nn.ModuleList([SingleStreamBlock(dim, heads) for _ in range(depth)])
        self.final_layer = LastLayer(dim, 8)

    def forward(self, img: Tensor, txt: Tensor, timesteps: Tensor) -> Tensor:
        vec = self.time_in(timestep_embedding(timesteps, 16))
        x = torch.cat((self.txt_in(txt), self.img_in(img)), 1)
        for block in self.single_blocks:
            x = block(x, vec)
        return self.final_layer(x[:, txt.shape[1] :], vec)


class AdaLayerNormSingle(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 3 * dim)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)

    def forward(self, x: Tensor, emb: Tensor) -> tuple[Tensor, Tensor]:
        shift_msa, scale_msa, gate_msa = self.linear(F.silu(emb)).chunk(3, dim=1)
        return self.norm(x) * (1 + scale_msa[:, None]) + shift_msa[:, None], gate_msa


class AdaLayerNormContinuous(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 2 * dim)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)

    def forward(self, x: Tensor, conditioning_embedding: Tensor) -> Tensor:
        emb = self.linear(F.silu(conditioning_embedding))
        scale, shift = torch.chunk(emb, 2, dim=1)
        return self.norm(x) * (1 + scale)[:, None, :] + shift[:, None, :]


class FluxSingleTransformerBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = AdaLayerNormSingle(dim)
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.proj_mlp = nn.Linear(dim, 2 * dim)
        self.proj_out = nn.Linear(3 * dim, dim)

    def forward(self, hidden_states: Tensor, temb: Tensor) -> Tensor:
        residual = hidden_states
        normed, gate = self.norm(hidden_states, temb)
        q, k, v = (p(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.to_q, self.to_k, self.to_v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        attn = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        mlp = F.gelu(self.proj_mlp(normed), approximate="tanh")
        return residual + gate.unsqueeze(1) * self.proj_out(torch.cat([attn, mlp], dim=2))


class FluxTransformer(nn.Module):
    def __init__(self, dim: int = 24, heads: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.x_embedder = nn.Linear(8, dim)
        self.context_embedder = nn.Linear(10, dim)
        self.linear_1 = nn.Linear(16, dim)
        self.linear_2 = nn.Linear(dim, dim)
        self.single_transformer_blocks = nn.ModuleList([FluxSingleTransformerBlock(dim, heads) for _ in range(depth)])
        self.norm_out = AdaLayerNormContinuous(dim)
        self.proj_out = nn.Linear(dim, 8)

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor, timestep: Tensor) -> Tensor:
        temb = self.linear_2(F.silu(self.linear_1(timestep_embedding(timestep, 16))))
        context = self.context_embedder(encoder_hidden_states)
        joint = torch.cat([context, self.x_embedder(hidden_states)], dim=1)
        for block in self.single_transformer_blocks:
            joint = block(joint, temb)
        return self.proj_out(self.norm_out(joint[:, context.shape[1] :], temb))


def swap_scale_shift(weight: Tensor) -> Tensor:
    shift, scale = weight.chunk(2, dim=0)
    return torch.cat([scale, shift], dim=0)


def convert(src: MiniFlux, swap: bool) -> dict[str, Tensor]:
    old = src.state_dict()
    dim = src.img_in.out_features
    renames = {"img_in": "x_embedder", "txt_in": "context_embedder", "time_in.0": "linear_1", "time_in.2": "linear_2"}
    renames["final_layer.linear"] = "proj_out"
    state = {f"{new}.{leaf}": old[f"{name}.{leaf}"] for name, new in renames.items() for leaf in ("weight", "bias")}
    for leaf in ("weight", "bias"):
        last = old[f"final_layer.adaLN_modulation.1.{leaf}"]
        state[f"norm_out.linear.{leaf}"] = swap_scale_shift(last) if swap else last
        for i in range(len(src.single_blocks)):
            a, b = f"single_blocks.{i}", f"single_transformer_blocks.{i}"
            pieces = old[f"{a}.linear1.{leaf}"].split([dim, dim, dim, 2 * dim])
            for name, piece in zip(("to_q", "to_k", "to_v", "proj_mlp"), pieces):
                state[f"{b}.{name}.{leaf}"] = piece
            state[f"{b}.proj_out.{leaf}"] = old[f"{a}.linear2.{leaf}"]
            state[f"{b}.norm.linear.{leaf}"] = old[f"{a}.modulation.lin.{leaf}"]
    return state


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple]:
    torch.manual_seed(7708)
    original = MiniFlux()
    port = FluxTransformer()
    port.load_state_dict(convert(original, swap=fixed))
    inputs = (torch.randn(2, 6, 8), torch.randn(2, 4, 10), torch.tensor([0.3, 0.85]))
    return original.eval(), port.eval(), inputs
