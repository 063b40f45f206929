"""After kekzl/imp#722.

A runtime that reads ggml checkpoints got a second, faster path for Q4_0 weights.  Every model
in its test suite used another format; the first Q4_0 model decoded to noise, the result being
several times off against a double-precision oracle, while the older de-quantising path agreed.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

QK4_0 = 32


def quantize_q4_0(w):
    """[out, in] -> (d [out, nb], qs [out, nb, 16] uint8), the layout of ggml's block_q4_0."""
    blocks = w.view(w.shape[0], -1, QK4_0)
    idx = blocks.abs().argmax(-1, keepdim=True)
    d = blocks.gather(-1, idx) / -8
    q = torch.clamp((blocks / torch.where(d == 0, torch.ones_like(d), d) + 8.5).floor(), 0, 15).to(torch.uint8)
    return d.squeeze(-1), q[..., :16] | (q[..., 16:] << 4)


def dequantize_row_q4_0(d, qs):
    lo = (qs & 0x0F).to(torch.int8) - 8
    hi = (qs >> 4).to(torch.int8) - 8
    return (torch.cat([lo, hi], dim=-1).float() * d[..., None]).flatten(1)


class GGMLLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        d, qs = quantize_q4_0(torch.randn(out_features, in_features) / in_features**0.5)
        self.register_buffer("d", d)
        self.register_buffer("qs", qs)

    def forward(self, x):
        return F.linear(x, dequantize_row_q4_0(self.d, self.qs))


class LlamaMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.ffn_norm = nn.RMSNorm(dim, eps=1e-5)
        self.ffn_gate, self.ffn_up, self.ffn_down = (
            GGMLLinear(dim, hidden),
            GGMLLinear(dim, hidden),
            GGMLLinear(hidden, dim),
        )

    def forward(self, x):
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class ReferenceModel(nn.Module):
    def __init__(self, vocab=96, dim=64, hidden=128, n=3):
        super().__init__()
        self.token_embd = nn.Embedding(vocab, dim)
        self.blk = nn.ModuleList([LlamaMLP(dim, hidden) for _ in range(n)])
        self.output_norm = nn.RMSNorm(dim, eps=1e-5)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.token_embd(tokens)
        for blk in self.blk:
            h = blk(h)
        return self.output(self.output_norm(h))


class Q4_0Traits:
    block = 32
    zero = 8

    @staticmethod
    def unpack(qs):
        return torch.stack([qs & 15, qs >> 4], dim=-1).flatten(-2)


class Q4_0TraitsMended(Q4_0Traits):
    @staticmethod
    def unpack(qs):
        return torch.cat([qs & 15, qs >> 4], dim=-1)


class GemvQuant(nn.Module):
    """y = sum_b d_b * (q_b . x_b - zero * sum(x_b)), one dot product for each block."""

    def __init__(self, traits, k, n):
        super().__init__()
        self.traits = traits
        self.register_buffer("scales", torch.zeros(n, k // traits.block))
        self.register_buffer("packed", torch.zeros(n, k // traits.block, traits.block // 2, dtype=torch.uint8))

    def forward(self, x):
        xb = x.unflatten(-1, (-1, self.traits.block))
        q = self.traits.unpack(self.packed).to(x.dtype)
        dots = torch.einsum("...bk,nbk->...nb", xb, q)
        dots = dots - self.traits.zero * xb.sum(-1).unsqueeze(-2)
        return (dots * self.scales).sum(-1)


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.gamma


class GluBlock(nn.Module):
    def __init__(self, traits, dim, hidden):
        super().__init__()
        self.norm = Norm(dim)
        self.w1, self.w3, self.w2 = (
            GemvQuant(traits, dim, hidden),
            GemvQuant(traits, dim, hidden),
            GemvQuant(traits, hidden, dim),
        )

    def forward(self, x):
        h = self.norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Executor(nn.Module):
    def __init__(self, traits, vocab=96, dim=64, hidden=128, n=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([GluBlock(traits, dim, hidden) for _ in range(n)])
        self.final_norm = Norm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for b in self.blocks:
            x = b(x)
        return self.lm_head(self.final_norm(x))


def load_gguf(sd):
    names = [
        ("token_embd", "embed"),
        ("blk.", "blocks."),
        ("output_norm.weight", "final_norm.gamma"),
        ("output.", "lm_head."),
        ("ffn_norm.weight", "norm.gamma"),
        ("ffn_gate", "w1"),
        ("ffn_up", "w3"),
        ("ffn_down", "w2"),
    ]
    out = {}
    for k, v in sd.items():
        for a, b in names:
            k = k.replace(a, b)
        k = k[:-2] + ".scales" if k.endswith(".d") else k[:-3] + ".packed" if k.endswith(".qs") else k
        out[k] = v
    return out


def build(fixed):
    torch.manual_seed(21)
    original = ReferenceModel().eval()
    port = Executor(Q4_0TraitsMended if fixed else Q4_0Traits).eval()
    port.load_state_dict(load_gguf(original.state_dict()))
    return original, port, (torch.randint(0, 96, (2, 10)),)
