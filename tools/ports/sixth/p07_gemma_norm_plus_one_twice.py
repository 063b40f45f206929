"""utensils/mold#1078: Gemma's RMSNorm (1 + w) is applied to GGUF weights that already carry the + 1.

The exporter writes norm weights with 1 added, as llama.cpp does.  The port's q/k/v are separate but its MLP is fused,
the embedding scale is folded into a buffer, and grouped heads go through scaled_dot_product_attention(enable_gqa).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIM, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 24, 4, 2, 8, 40, 48


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim) * 0.3)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return normed * (1.0 + self.weight)


def rotary_table(length: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    freqs = base ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
    angles = torch.outer(torch.arange(length).float(), freqs)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


class GemmaAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
        self.q_norm = GemmaRMSNorm(HEAD_DIM)
        self.k_norm = GemmaRMSNorm(HEAD_DIM)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, HEADS, HEAD_DIM)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, KV_HEADS, HEAD_DIM)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)
        scores = q @ k.transpose(2, 3) * HEAD_DIM**-0.5
        scores = scores + torch.full((t, t), float("-inf")).triu(1)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))


class GemmaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = GemmaRMSNorm(DIM)
        self.self_attn = GemmaAttention()
        self.post_attention_layernorm = GemmaRMSNorm(DIM)
        self.pre_feedforward_layernorm = GemmaRMSNorm(DIM)
        self.gate_proj = nn.Linear(DIM, FFN, bias=False)
        self.up_proj = nn.Linear(DIM, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, DIM, bias=False)
        self.post_feedforward_layernorm = GemmaRMSNorm(DIM)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cos, sin))
        h = self.pre_feedforward_layernorm(x)
        h = self.down_proj(F.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h))
        return x + self.post_feedforward_layernorm(h)


class GemmaTextEncoder(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(GemmaLayer() for _ in range(depth))
        self.norm = GemmaRMSNorm(DIM)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids) * math.sqrt(DIM)
        cos, sin = rotary_table(ids.shape[1])
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def export_gguf(model: GemmaTextEncoder) -> dict[str, Tensor]:
    """Tensor names and conventions of the GGUF file: every *norm.weight has 1 added."""
    pieces = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "gate_proj": "ffn_gate",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
    }
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name.startswith("layers."):
            _, index, rest = name.split(".", 2)
            target = f"blk.{index}.{pieces[rest.removesuffix('.weight')]}.weight"
        else:
            target = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]
        tensors[target] = value + 1.0 if target.endswith("norm.weight") else value.clone()
    return tensors


class NormLayer(nn.Module):
    def __init__(self, weight: Tensor, offset: float) -> None:
        super().__init__()
        self.register_buffer("scale", weight + offset)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.scale, 1e-6)


class QuantBlock(nn.Module):
    def __init__(self, t: dict[str, Tensor], index: int, offset: float) -> None:
        super().__init__()
        prefix = f"blk.{index}."
        self.norms = nn.ModuleDict(
            {
                key: NormLayer(t[f"{prefix}{key}.weight"], offset)
                for key in (
                    "attn_norm",
                    "attn_q_norm",
                    "attn_k_norm",
                    "post_attention_norm",
                    "ffn_norm",
                    "post_ffw_norm",
                )
            }
        )
        for key in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down"):
            self.register_buffer(key, t[f"{prefix}{key}.weight"])
        self.register_buffer("ffn_gate_up", torch.cat([t[f"{prefix}ffn_gate.weight"], t[f"{prefix}ffn_up.weight"]]))

    def rope(self, x: Tensor) -> Tensor:
        half = HEAD_DIM // 2
        freqs = 10000.0 ** (-torch.arange(half).float() / half)
        angle = torch.arange(x.shape[-2]).float()[:, None] * freqs
        x1, x2 = x[..., :half], x[..., half:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norms["attn_norm"](x)
        q = F.linear(h, self.attn_q).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
        k = F.linear(h, self.attn_k).unflatten(-1, (KV_HEADS, HEAD_DIM)).transpose(1, 2)
        v = F.linear(h, self.attn_v).unflatten(-1, (KV_HEADS, HEAD_DIM)).transpose(1, 2)
        q = self.rope(self.norms["attn_q_norm"](q))
        k = self.rope(self.norms["attn_k_norm"](k))
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        att = F.linear(att.transpose(1, 2).flatten(2), self.attn_output)
        x = x + self.norms["post_attention_norm"](att)
        gate, up = F.linear(self.norms["ffn_norm"](x), self.ffn_gate_up).chunk(2, dim=-1)
        ffn = F.linear(F.gelu(gate, approximate="tanh") * up, self.ffn_down)
        return x + self.norms["post_ffw_norm"](ffn)


class GgufTextEncoder(nn.Module):
    def __init__(self, tensors: dict[str, Tensor], depth: int, norm_offset: float) -> None:
        super().__init__()
        self.register_buffer("scaled_table", tensors["token_embd.weight"] * DIM**0.5)
        self.blocks = nn.ModuleList(QuantBlock(tensors, i, norm_offset) for i in range(depth))
        self.output_norm = NormLayer(tensors["output_norm.weight"], norm_offset)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.scaled_table[ids]
        for block in self.blocks:
            x = block(x)
        return self.output_norm(x)


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(107)
    original = GemmaTextEncoder().eval()
    port = GgufTextEncoder(export_gguf(original), depth=2, norm_offset=0.0 if fixed else 1.0).eval()
    return original, port, (torch.randint(0, VOCAB, (2, 10)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
