"""After JieShibo/MoLE#9.

A model pretrained with Megatron is to be loaded by a transformers-style modelling file.
Shapes all fit, the loss of the converted checkpoint is that of an untrained model.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, H, FF, L = 36, 24, 3, 40, 2
HD = D // H


def rope_cache(t, dim, base=10000.0):
    ang = torch.arange(t).float()[:, None] / base ** (torch.arange(0, dim, 2).float() / dim)
    return torch.cat([ang, ang], -1)


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class ParallelAttention(nn.Module):
    """query_key_value rows are grouped by head: [q_0 k_0 v_0 q_1 k_1 v_1 ...]."""

    def __init__(self):
        super().__init__()
        self.linear_qkv = nn.Linear(D, 3 * D, bias=False)
        self.linear_proj = nn.Linear(D, D, bias=False)

    def forward(self, x):  # s b h
        s, b, _ = x.shape
        q, k, v = self.linear_qkv(x).view(s, b, H, 3 * HD).chunk(3, -1)
        e = rope_cache(s, HD)[:, None, None]
        q, k = (y * e.cos() + rotate_half(y) * e.sin() for y in (q, k))
        a = torch.einsum("sbhd,tbhd->bhst", q, k) / HD**0.5
        a = a.masked_fill(torch.ones(s, s).triu(1).bool(), -1e9).softmax(-1)
        return self.linear_proj(torch.einsum("bhst,tbhd->sbhd", a, v).reshape(s, b, D))


class ParallelMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_fc1 = nn.Linear(D, 2 * FF, bias=False)
        self.linear_fc2 = nn.Linear(FF, D, bias=False)

    def forward(self, x):
        g, u = self.linear_fc1(x).chunk(2, -1)
        return self.linear_fc2(F.silu(g) * u)


class MegatronLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(D, eps=1e-6)
        self.self_attention = ParallelAttention()
        self.pre_mlp_layernorm = nn.RMSNorm(D, eps=1e-6)
        self.mlp = ParallelMLP()

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))
        return x + self.mlp(self.pre_mlp_layernorm(x))


class MegatronLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(V, D)
        self.layers = nn.ModuleList(MegatronLayer() for _ in range(L))
        self.final_layernorm = nn.RMSNorm(D, eps=1e-6)
        self.output_layer = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.word_embeddings(ids).transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.output_layer(self.final_layernorm(x)).transpose(0, 1)


class MoleAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(D, D, bias=False)
        self.k_proj = nn.Linear(D, D, bias=False)
        self.v_proj = nn.Linear(D, D, bias=False)
        self.o_proj = nn.Linear(D, D, bias=False)

    def forward(self, h, cos, sin):
        shape = (*h.shape[:-1], H, HD)
        q, k, v = (p(h).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class MoleDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.RMSNorm(D, eps=1e-6)
        self.attn = MoleAttention()
        self.ln2 = nn.RMSNorm(D, eps=1e-6)
        self.gate_proj = nn.Linear(D, FF, bias=False)
        self.up_proj = nn.Linear(D, FF, bias=False)
        self.down_proj = nn.Linear(FF, D, bias=False)

    def forward(self, h, cos, sin):
        h = self.attn(self.ln1(h), cos, sin) + h
        n = self.ln2(h)
        return self.down_proj(self.up_proj(n) * F.silu(self.gate_proj(n))) + h


class MoleForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, D)
        self.layers = nn.ModuleList(MoleDecoderLayer() for _ in range(L))
        self.norm = nn.RMSNorm(D, eps=1e-6)
        self.lm_head = nn.Linear(D, V, bias=False)

    def forward(self, input_ids):
        e = rope_cache(input_ids.shape[1], HD)
        h = self.embed_tokens(input_ids)
        for layer in self.layers:
            h = layer(h, e.cos(), e.sin())
        return self.lm_head(self.norm(h))


def split_qkv_rows(w):
    return w[:D], w[D : 2 * D], w[2 * D :]


def split_qkv_heads(w):
    w = w.view(H, 3, HD, D)
    return tuple(w[:, j].reshape(D, D) for j in range(3))


def convert(sd, split=split_qkv_rows):
    new = {
        "embed_tokens.weight": sd["word_embeddings.weight"],
        "norm.weight": sd["final_layernorm.weight"],
        "lm_head.weight": sd["output_layer.weight"],
    }
    for i in range(L):
        p = f"layers.{i}."
        new[p + "ln1.weight"] = sd[p + "input_layernorm.weight"]
        new[p + "ln2.weight"] = sd[p + "pre_mlp_layernorm.weight"]
        for name, w in zip("qkv", split(sd[p + "self_attention.linear_qkv.weight"])):
            new[p + f"attn.{name}_proj.weight"] = w
        new[p + "attn.o_proj.weight"] = sd[p + "self_attention.linear_proj.weight"]
        new[p + "gate_proj.weight"], new[p + "up_proj.weight"] = sd[p + "mlp.linear_fc1.weight"].chunk(2)
        new[p + "down_proj.weight"] = sd[p + "mlp.linear_fc2.weight"]
    return new


def build(fixed):
    torch.manual_seed(9)
    original = MegatronLM().eval()
    with torch.no_grad():
        for layer in original.layers:
            layer.self_attention.linear_qkv.weight.mul_(2)
            layer.input_layernorm.weight.uniform_(0.6, 1.4), layer.pre_mlp_layernorm.weight.uniform_(0.6, 1.4)
    port = MoleForCausalLM().eval()
    sd = original.state_dict()
    port.load_state_dict(convert(sd, split_qkv_heads) if fixed else convert(sd))
    return original, port, (torch.randint(0, V, (2, 10)),)
