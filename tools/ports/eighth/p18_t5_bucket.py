"""After huggingface/candle#1312.

The encoder of a T5 port gives the same result as the Python library for short sentences; with
longer inputs the hidden states part.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = {"vocab": 70, "d_model": 32, "d_kv": 8, "heads": 4, "d_ff": 64, "layers": 3, "buckets": 16, "max_distance": 24}


class T5LayerNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(d) + 0.5)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class T5Attention(nn.Module):
    def __init__(self, c, has_bias):
        super().__init__()
        inner = c["heads"] * c["d_kv"]
        self.c, self.has_bias = c, has_bias
        self.q, self.k, self.v, self.o = (
            nn.Linear(a, b, bias=False) for a, b in [(c["d_model"], inner)] * 3 + [(inner, c["d_model"])]
        )
        nn.init.normal_(self.q.weight, std=(c["d_model"] * c["d_kv"]) ** -0.5)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(c["buckets"], c["heads"])

    def _relative_position_bucket(self, rel, num_buckets, max_distance):
        num_buckets //= 2
        buckets = (rel > 0).long() * num_buckets
        rel = rel.abs()
        max_exact = num_buckets // 2
        large = (
            max_exact
            + (
                torch.log(rel.float().clamp(min=1) / max_exact)
                / math.log(max_distance / max_exact)
                * (num_buckets - max_exact)
            ).long()
        )
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        return buckets + torch.where(rel < max_exact, rel, large)

    def forward(self, x, position_bias=None):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, self.c["heads"], -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        if position_bias is None:
            pos = torch.arange(t)
            rel = self._relative_position_bucket(pos[None] - pos[:, None], self.c["buckets"], self.c["max_distance"])
            position_bias = self.relative_attention_bias(rel).permute(2, 0, 1)[None]
        w = (q @ k.transpose(2, 3) + position_bias).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, t, -1)), position_bias


class T5Block(nn.Module):
    def __init__(self, c, has_bias):
        super().__init__()
        self.SelfAttention, self.ln0, self.ln1 = (
            T5Attention(c, has_bias),
            T5LayerNorm(c["d_model"]),
            T5LayerNorm(c["d_model"]),
        )
        self.wi, self.wo = (
            nn.Linear(c["d_model"], c["d_ff"], bias=False),
            nn.Linear(c["d_ff"], c["d_model"], bias=False),
        )

    def forward(self, x, bias):
        y, bias = self.SelfAttention(self.ln0(x), bias)
        x = x + y
        return x + self.wo(F.relu(self.wi(self.ln1(x)))), bias


class T5EncoderModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.shared = nn.Embedding(c["vocab"], c["d_model"])
        self.block = nn.ModuleList([T5Block(c, i == 0) for i in range(c["layers"])])
        self.final_layer_norm = T5LayerNorm(c["d_model"])

    def forward(self, ids):
        x, bias = self.shared(ids), None
        for blk in self.block:
            x, bias = blk(x, bias)
        return self.final_layer_norm(x)


class Buckets:
    def __init__(self, num_buckets, max_distance):
        self.total, self.half, self.max_exact = num_buckets, num_buckets // 2, num_buckets // 4
        self.max_distance = max_distance

    def log_bucket(self, n):
        return int(
            math.log(n / self.max_exact) / math.log(self.max_distance / self.max_exact) * (self.half - self.max_exact)
        )

    def __call__(self, i, j):
        if i < j:
            if j - i < self.max_exact:
                return j - i + self.half
            return min(self.max_exact + self.half + self.log_bucket(j - i), self.total - 1)
        if i - j < self.max_exact:
            return i - j
        return self.max_exact + self.log_bucket(i - j)


class BucketsMended(Buckets):
    def __call__(self, i, j):
        b = super().__call__(i, j)
        return b if i < j else min(b, self.half - 1)


class RelativeBias(nn.Module):
    def __init__(self, buckets, heads):
        super().__init__()
        self.buckets, self.embedding = buckets, nn.Embedding(buckets.total, heads)

    def forward(self, n):
        table = torch.tensor([[self.buckets(i, j) for j in range(n)] for i in range(n)])
        return self.embedding(table).movedim(-1, 0).unsqueeze(0)


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, self.w.shape, self.w, 1e-6)


class SelfAttention(nn.Module):
    def __init__(self, d, heads, d_kv):
        super().__init__()
        self.heads, self.qkv, self.out = (
            heads,
            nn.Linear(d, 3 * heads * d_kv, bias=False),
            nn.Linear(heads * d_kv, d, bias=False),
        )

    def forward(self, x, bias):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm_attn, self.norm_ff = RmsNorm(c["d_model"]), RmsNorm(c["d_model"])
        self.attn = SelfAttention(c["d_model"], c["heads"], c["d_kv"])
        self.ff = nn.Sequential(
            nn.Linear(c["d_model"], c["d_ff"], bias=False), nn.ReLU(), nn.Linear(c["d_ff"], c["d_model"], bias=False)
        )

    def forward(self, x, bias):
        x = x + self.attn(self.norm_attn(x), bias)
        return x + self.ff(self.norm_ff(x))


class T5Encoder(nn.Module):
    def __init__(self, c, buckets):
        super().__init__()
        self.tokens, self.rel = (
            nn.Embedding(c["vocab"], c["d_model"]),
            RelativeBias(buckets(c["buckets"], c["max_distance"]), c["heads"]),
        )
        self.layers, self.norm = nn.ModuleList([EncoderLayer(c) for _ in range(c["layers"])]), RmsNorm(c["d_model"])

    def forward(self, ids):
        x, bias = self.tokens(ids), self.rel(ids.shape[1])
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)


def convert(sd, c):
    out = {
        "tokens.weight": sd["shared.weight"],
        "norm.w": sd["final_layer_norm.weight"],
        "rel.embedding.weight": sd["block.0.SelfAttention.relative_attention_bias.weight"],
    }
    for i in range(c["layers"]):
        s, d = f"block.{i}.", f"layers.{i}."
        out[d + "attn.qkv.weight"] = torch.cat([sd[f"{s}SelfAttention.{p}.weight"] for p in "qkv"])
        for a, b in (("SelfAttention.o", "attn.out"), ("wi", "ff.0"), ("wo", "ff.2")):
            out[f"{d}{b}.weight"] = sd[f"{s}{a}.weight"]
        out[d + "norm_attn.w"], out[d + "norm_ff.w"] = sd[s + "ln0.weight"], sd[s + "ln1.weight"]
    return out


def build(fixed):
    torch.manual_seed(37)
    original = T5EncoderModel(CFG).eval()
    port = T5Encoder(CFG, BucketsMended if fixed else Buckets).eval()
    port.load_state_dict(convert(original.state_dict(), CFG))
    return original, port, (torch.randint(0, 70, (2, 40)),)
