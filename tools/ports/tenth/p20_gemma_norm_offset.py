"""linkedin/Liger-Kernel#74: Gemma with its layers replaced by fused ones.

The fused norm, written for the Llama family, was put into Gemma too. With the same checkpoint
the patched model's hidden states are off from the first layer on.
"""

import torch
import torch.nn.functional as F
from torch import nn


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(dim) * 0.3)

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * (1.0 + self.weight)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class GemmaAttention(nn.Module):
    def __init__(self, dim, heads, head_dim):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.q_proj = nn.Linear(dim, heads * head_dim, bias=False)
        self.k_proj, self.v_proj = nn.Linear(dim, head_dim, bias=False), nn.Linear(dim, head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, dim, bias=False)

    def forward(self, x):
        B, T, _ = x.shape
        inv = 10000.0 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
        ang = torch.outer(torch.arange(T).float(), inv).repeat(1, 2)
        q = self.q_proj(x).view(B, T, self.heads, -1).transpose(1, 2)
        k, v = self.k_proj(x)[:, None], self.v_proj(x)[:, None]
        q = q * ang.cos() + rotate_half(q) * ang.sin()
        k = k * ang.cos() + rotate_half(k) * ang.sin()
        s = q @ k.transpose(2, 3) * self.head_dim**-0.5
        s = s + torch.full((T, T), float("-inf")).triu(1)
        return self.o_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1))


class GemmaLayer(nn.Module):
    def __init__(self, dim, heads, head_dim, inter):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = GemmaRMSNorm(dim), GemmaRMSNorm(dim)
        self.self_attn = GemmaAttention(dim, heads, head_dim)
        self.gate_proj, self.up_proj = nn.Linear(dim, inter, bias=False), nn.Linear(dim, inter, bias=False)
        self.down_proj = nn.Linear(inter, dim, bias=False)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h))


class Gemma(nn.Module):
    def __init__(self, vocab=40, dim=16, heads=3, head_dim=6, inter=32, depth=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embed_tokens.weight, std=0.3)
        self.layers = nn.ModuleList([GemmaLayer(dim, heads, head_dim, inter) for _ in range(depth)])
        self.norm = GemmaRMSNorm(dim)

    def forward(self, ids):
        x = self.embed_tokens(ids) * self.embed_tokens.embedding_dim**0.5
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed_tokens.weight.t()


class FusedRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6, offset=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon, self.offset = eps, offset

    def forward(self, hidden):
        rstd = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).square() / hidden.size(-1)
        rstd = (rstd + self.variance_epsilon).rsqrt()
        return (hidden * rstd) * (self.weight + self.offset)


class FusedGEGLU(nn.Module):
    def __init__(self, hidden, inter):
        super().__init__()
        self.wi, self.wo = nn.Linear(hidden, 2 * inter, bias=False), nn.Linear(inter, hidden, bias=False)

    def forward(self, x):
        a, b = self.wi(x).tensor_split(2, dim=-1)
        inner = 0.7978845608028654 * (a + 0.044715 * a**3)
        return self.wo(0.5 * a * (1 + inner.tanh()) * b)


class FusedAttention(nn.Module):
    def __init__(self, hidden, n_q, d):
        super().__init__()
        self.n_q, self.d = n_q, d
        self.qkv = nn.Linear(hidden, (n_q + 2) * d, bias=False)
        self.out = nn.Linear(n_q * d, hidden, bias=False)

    def rope(self, t):
        half = self.d // 2
        pos = torch.arange(t.size(1)).float()[:, None, None]
        theta = pos * 10000.0 ** (-torch.arange(half) / half)
        z = torch.complex(t[..., :half], t[..., half:]) * torch.polar(torch.ones_like(theta), theta)
        return torch.cat([z.real, z.imag], -1)

    def forward(self, x):
        heads = self.qkv(x).unflatten(-1, (self.n_q + 2, self.d))
        qk, v = self.rope(heads[:, :, :-1]), heads[:, :, -1]
        s = torch.einsum("bthd,bsd->bhts", qk[:, :, :-1], qk[:, :, -1]) / self.d**0.5
        keep = torch.ones(s.shape[-2:]).tril().bool()
        p = s.masked_fill(~keep, -1e30).softmax(-1)
        return self.out(torch.einsum("bhts,bsd->bthd", p, v).flatten(2))


class FusedLayer(nn.Module):
    def __init__(self, hidden, n_q, d, inter, offset):
        super().__init__()
        self.input_norm = FusedRMSNorm(hidden, offset=offset)
        self.attn = FusedAttention(hidden, n_q, d)
        self.mlp_norm = FusedRMSNorm(hidden, offset=offset)
        self.mlp = FusedGEGLU(hidden, inter)

    def forward(self, x):
        x = x + self.attn(self.input_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class PatchedGemma(nn.Module):
    def __init__(self, vocab=40, hidden=16, depth=2, offset=0.0):
        super().__init__()
        self.wte = nn.Embedding(vocab, hidden)
        self.layers = nn.Sequential(*[FusedLayer(hidden, 3, 6, 32, offset) for _ in range(depth)])
        self.final_norm = FusedRMSNorm(hidden, offset=offset)

    def forward(self, ids):
        x = self.layers(self.wte(ids).mul(4.0))
        return F.linear(self.final_norm(x), self.wte.weight)


def convert(sd):
    out = {"wte.weight": sd["embed_tokens.weight"], "final_norm.weight": sd["norm.weight"]}
    for i in range(2):
        p = f"layers.{i}."
        out[p + "input_norm.weight"] = sd[p + "input_layernorm.weight"]
        out[p + "mlp_norm.weight"] = sd[p + "post_attention_layernorm.weight"]
        out[p + "attn.qkv.weight"] = torch.cat([sd[f"{p}self_attn.{n}_proj.weight"] for n in "qkv"])
        out[p + "attn.out.weight"] = sd[p + "self_attn.o_proj.weight"]
        out[p + "mlp.wi.weight"] = torch.cat([sd[p + "gate_proj.weight"], sd[p + "up_proj.weight"]])
        out[p + "mlp.wo.weight"] = sd[p + "down_proj.weight"]
    return out


def build(fixed):
    torch.manual_seed(33)
    original = Gemma().eval()
    port = PatchedGemma(offset=1.0 if fixed else 0.0).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 40, (2, 8)),)
