"""AI-Hypercomputer/maxtext#3138

Multi-head latent attention was moved to a fused attention backend: queries scaled
after the projection, keys and values padded to one head size.  With plain dot-product
attention the logits match the reference, with the fused backend they do not.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def apply_rotary(x, freqs_cis):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * freqs_cis[:, None]).flatten(-2)


class MLAReference(nn.Module):
    def __init__(self, dim, heads, q_rank, kv_rank, nope, rope, v_dim):
        super().__init__()
        self.heads, self.nope, self.rope, self.v_dim = heads, nope, rope, v_dim
        self.wq_a, self.q_norm = nn.Linear(dim, q_rank, bias=False), RMSNorm(q_rank)
        self.wq_b = nn.Linear(q_rank, heads * (nope + rope), bias=False)
        self.wkv_a, self.kv_norm = nn.Linear(dim, kv_rank + rope, bias=False), RMSNorm(kv_rank)
        self.wkv_b = nn.Linear(kv_rank, heads * (nope + v_dim), bias=False)
        self.wo = nn.Linear(heads * v_dim, dim, bias=False)
        self.softmax_scale = (nope + rope) ** -0.5

    def forward(self, x, freqs_cis, mask):
        b, n, _ = x.shape
        q = self.wq_b(self.q_norm(self.wq_a(x))).view(b, n, self.heads, -1)
        q_nope, q_pe = q.split([self.nope, self.rope], -1)
        kv = self.wkv_a(x)
        k_pe = apply_rotary(kv[..., None, -self.rope :], freqs_cis)
        k_nope, v = (
            self.wkv_b(self.kv_norm(kv[..., : -self.rope]))
            .view(b, n, self.heads, -1)
            .split([self.nope, self.v_dim], -1)
        )
        q = torch.cat([q_nope, apply_rotary(q_pe, freqs_cis)], -1)
        k = torch.cat([k_nope, k_pe.expand(-1, -1, self.heads, -1)], -1)
        scores = torch.einsum("bshd,bthd->bsht", q, k) * self.softmax_scale + mask[:, None]
        return self.wo(torch.einsum("bsht,bthd->bshd", scores.softmax(-1), v).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, ff, **kw):
        super().__init__()
        self.attn_norm, self.attn, self.ffn_norm = RMSNorm(dim), MLAReference(dim, **kw), RMSNorm(dim)
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, ff, bias=False),
            nn.Linear(ff, dim, bias=False),
            nn.Linear(dim, ff, bias=False),
        )

    def forward(self, x, freqs_cis, mask):
        x = x + self.attn(self.attn_norm(x), freqs_cis, mask)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Transformer(nn.Module):
    def __init__(self, vocab=36, dim=24, layers=3, ff=40, **kw):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(vocab, dim), RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.layers = nn.ModuleList(Block(dim, ff, **kw) for _ in range(layers))
        self.rope = kw["rope"]

    def forward(self, tokens):
        n = tokens.shape[1]
        ang = torch.outer(torch.arange(n).float(), 10000.0 ** (-torch.arange(0, self.rope, 2).float() / self.rope))
        freqs_cis, mask = torch.polar(torch.ones_like(ang), ang), torch.full((n, n), float("-inf")).triu(1)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, freqs_cis, mask)
        return self.head(self.norm(x))


class FusedAttentionOp(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, query, key, value):
        pad = query.shape[-1] - value.shape[-1]
        q, k, v = (t.transpose(1, 2) for t in (query, key, F.pad(value, (0, pad))))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return out.transpose(1, 2)[..., : value.shape[-1]]


class MLA(nn.Module):
    def __init__(self, dim, heads, q_rank, kv_rank, nope, rope, v_dim, op_scale):
        super().__init__()

        def mk(*s):
            return nn.Parameter(torch.empty(*s))

        self.query_down, self.query_up_nope, self.query_up_rope = (
            mk(dim, q_rank),
            mk(q_rank, heads, nope),
            mk(q_rank, heads, rope),
        )
        self.kv_down, self.key_rope = mk(dim, kv_rank), mk(dim, rope)
        self.key_up, self.value_up, self.out = (
            mk(kv_rank, heads, nope),
            mk(kv_rank, heads, v_dim),
            mk(heads, v_dim, dim),
        )
        self.query_norm, self.kv_norm = nn.RMSNorm(q_rank, eps=1e-6), nn.RMSNorm(kv_rank, eps=1e-6)
        self.query_scale = (nope + rope) ** -0.5
        self.attention_op = FusedAttentionOp(op_scale)

    @staticmethod
    def rotate(x):
        d = x.shape[-1]
        ang = torch.arange(x.shape[1])[:, None] / 10000.0 ** (torch.arange(0, d, 2) / d)
        cos, sin = ang.cos()[:, None], ang.sin()[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def forward(self, x):
        ql, kl = self.query_norm(x @ self.query_down), self.kv_norm(x @ self.kv_down)
        q_nope = torch.einsum("blr,rhd->blhd", ql, self.query_up_nope)
        q_rope = self.rotate(torch.einsum("blr,rhd->blhd", ql, self.query_up_rope))
        query = torch.cat([q_nope, q_rope], -1) * self.query_scale
        k_rope = self.rotate((x @ self.key_rope).unsqueeze(2)).expand_as(q_rope)
        key = torch.cat([torch.einsum("blr,rhd->blhd", kl, self.key_up), k_rope], -1)
        value = torch.einsum("blr,rhd->blhd", kl, self.value_up)
        return torch.einsum("blhd,hdm->blm", self.attention_op(query, key, value), self.out)


class DecoderLayer(nn.Module):
    def __init__(self, dim, ff, **kw):
        super().__init__()
        self.pre_self_attention_norm, self.post_self_attention_norm = (
            nn.RMSNorm(dim, eps=1e-6),
            nn.RMSNorm(dim, eps=1e-6),
        )
        self.self_attention = MLA(dim, **kw)
        self.wi, self.wo = nn.Parameter(torch.empty(2, dim, ff)), nn.Parameter(torch.empty(ff, dim))

    def forward(self, x):
        x = x + self.self_attention(self.pre_self_attention_norm(x))
        gate, up = torch.einsum("bld,kdf->kblf", self.post_self_attention_norm(x), self.wi)
        return x + (F.silu(gate) * up) @ self.wo


class MaxTextDecoder(nn.Module):
    def __init__(self, vocab=36, dim=24, layers=3, ff=40, **kw):
        super().__init__()
        self.token_embedder, self.logits_dense = nn.Embedding(vocab, dim), nn.Parameter(torch.empty(dim, vocab))
        self.layers, self.decoder_norm = (
            nn.Sequential(*[DecoderLayer(dim, ff, **kw) for _ in range(layers)]),
            nn.RMSNorm(dim, eps=1e-6),
        )

    def forward(self, tokens):
        return self.decoder_norm(self.layers(self.token_embedder(tokens))) @ self.logits_dense


CFG = {"heads": 3, "q_rank": 12, "kv_rank": 10, "nope": 8, "rope": 4, "v_dim": 6}


def convert(sd):
    h, nope, _rope, kvr = CFG["heads"], CFG["nope"], CFG["rope"], CFG["kv_rank"]
    out = {
        "token_embedder.weight": sd["embed.weight"],
        "logits_dense": sd["head.weight"].t(),
        "decoder_norm.weight": sd["norm.weight"],
    }
    for i in range(3):
        s, a, t = f"layers.{i}.", f"layers.{i}.attn.", f"layers.{i}.self_attention."
        out[f"layers.{i}.pre_self_attention_norm.weight"] = sd[s + "attn_norm.weight"]
        out[f"layers.{i}.post_self_attention_norm.weight"] = sd[s + "ffn_norm.weight"]
        out[f"layers.{i}.wi"] = torch.stack([sd[s + "w1.weight"].t(), sd[s + "w3.weight"].t()])
        out[f"layers.{i}.wo"] = sd[s + "w2.weight"].t()
        qb, kvb = sd[a + "wq_b.weight"].t().unflatten(1, (h, -1)), sd[a + "wkv_b.weight"].t().unflatten(1, (h, -1))
        out[t + "query_down"], out[t + "query_norm.weight"] = sd[a + "wq_a.weight"].t(), sd[a + "q_norm.weight"]
        out[t + "query_up_nope"], out[t + "query_up_rope"] = qb[..., :nope], qb[..., nope:]
        out[t + "kv_down"], out[t + "key_rope"] = sd[a + "wkv_a.weight"][:kvr].t(), sd[a + "wkv_a.weight"][kvr:].t()
        out[t + "kv_norm.weight"] = sd[a + "kv_norm.weight"]
        out[t + "key_up"], out[t + "value_up"] = kvb[..., :nope], kvb[..., nope:]
        out[t + "out"] = sd[a + "wo.weight"].t().unflatten(0, (h, -1))
    return {k: v.contiguous().clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(20)
    original = Transformer(**CFG).eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n else 0.0, 0.3)
    port = MaxTextDecoder(op_scale=1.0 if fixed else None, **CFG).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 36, (2, 9)),)
