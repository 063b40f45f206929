# ruff: noqa: B023
"""guillaume-be/rust-bert#171: T5 ported to another language.

Old checkpoints still carry a relative position table for the first encoder-decoder attention.
Encoder states of the port equal the original's; decoder states differ.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

BUCKETS, MAXD = 8, 16


def bucket(rel, bidirectional):
    n, ret = BUCKETS, torch.zeros_like(rel)
    if bidirectional:
        n //= 2
        ret = (rel > 0).long() * n
        rel = rel.abs()
    else:
        rel = -rel.clamp(max=0)
    exact = n // 2
    large = exact + ((rel.float().clamp(min=1) / exact).log() / math.log(MAXD / exact) * (n - exact)).long()
    return ret + torch.where(rel < exact, rel, large.clamp(max=n - 1))


class T5Attention(nn.Module):
    def __init__(self, d, heads, table=False):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        if table:
            self.relative_attention_bias = nn.Embedding(BUCKETS, heads)

    def position_bias(self, n, bidirectional):
        rel = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        return self.relative_attention_bias(bucket(rel, bidirectional)).permute(2, 0, 1)

    def forward(self, x, kv, bias=0.0):
        def split(t):
            return t.view(t.size(0), t.size(1), self.heads, -1).transpose(1, 2)

        scores = split(self.q(x)) @ split(self.k(kv)).transpose(2, 3) + bias
        return self.o((scores.softmax(-1) @ split(self.v(kv))).transpose(1, 2).flatten(2))


class T5Block(nn.Module):
    def __init__(self, d, heads, first, decoder):
        super().__init__()
        self.SelfAttention = T5Attention(d, heads, first)
        self.norm_self, self.norm_ff = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
        if decoder:
            self.EncDecAttention = T5Attention(d, heads, first)
            self.norm_cross = nn.RMSNorm(d, eps=1e-6)
        self.wi, self.wo = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x, bias, memory=None):
        h = self.norm_self(x)
        x = x + self.SelfAttention(h, h, bias)
        if memory is not None:
            x = x + self.EncDecAttention(self.norm_cross(x), memory)
        return x + self.wo(F.relu(self.wi(self.norm_ff(x))))


class T5(nn.Module):
    def __init__(self, vocab=30, d=12, heads=3):
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.encoder = nn.ModuleList([T5Block(d, heads, i == 0, False) for i in range(2)])
        self.decoder = nn.ModuleList([T5Block(d, heads, i == 0, True) for i in range(2)])
        self.enc_norm, self.dec_norm = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)

    def forward(self, src, tgt):
        x = self.shared(src)
        bias = self.encoder[0].SelfAttention.position_bias(src.size(1), True)
        for block in self.encoder:
            x = block(x, bias)
        memory, y, n = self.enc_norm(x), self.shared(tgt), tgt.size(1)
        bias = self.decoder[0].SelfAttention.position_bias(n, False) + torch.full((n, n), -1e9).triu(1)
        for block in self.decoder:
            y = block(y, bias, memory)
        return self.dec_norm(y) * y.size(-1) ** -0.5 @ self.shared.weight.t()


class MultiHead(nn.Module):
    """Heads are a tensor axis of the weights; the table is read by every layer of its kind."""

    def __init__(self, d, h):
        super().__init__()
        self.wqkv = nn.Parameter(torch.empty(3, h, d, d // h))
        self.wo = nn.Parameter(torch.empty(h, d // h, d))

    def forward(self, x, memory, rel, mask):
        q = torch.einsum("btd,hde->bhte", x, self.wqkv[0])
        k, v = torch.einsum("bsd,nhde->nbhse", memory, self.wqkv[1:])
        att = torch.einsum("bhte,bhse->bhts", q, k)
        if rel is not None:
            att = att + rel
        if mask is not None:
            att = att.masked_fill(mask, float("-inf"))
        return torch.einsum("bhts,bhse,hed->btd", att.softmax(-1), v, self.wo)


class Layer(nn.Module):
    def __init__(self, d, h, cross):
        super().__init__()
        self.gains = nn.Parameter(torch.empty(2 + cross, d))
        self.attn = MultiHead(d, h)
        self.cross = MultiHead(d, h) if cross else None
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x, rel, mask, memory=None, cross_rel=None):
        norms = iter(self.gains)

        def rms(t):
            return F.rms_norm(t, t.shape[-1:], next(norms), 1e-6)

        h = rms(x)
        x = x + self.attn(h, h, rel, mask)
        if self.cross is not None:
            x = x + self.cross(rms(x), memory, cross_rel, None)
        return x + self.down(self.up(rms(x)).clamp_min(0))


class PortedT5(nn.Module):
    def __init__(self, vocab=30, d=12, h=3, bias_cross=True):
        super().__init__()
        self.bias_cross = bias_cross
        self.tokens = nn.Parameter(torch.empty(vocab, d))
        self.rel_tables = nn.Parameter(torch.empty(3, BUCKETS, h))
        self.enc = nn.ModuleList([Layer(d, h, False) for _ in range(2)])
        self.dec = nn.ModuleList([Layer(d, h, True) for _ in range(2)])
        self.last = nn.Parameter(torch.empty(2, d))

    def rel(self, which, t, s, both_ways):
        off = torch.arange(s)[None] - torch.arange(t)[:, None]
        return self.rel_tables[which][bucket(off, both_ways)].movedim(-1, 0)

    def forward(self, src, tgt):
        s, t = src.size(1), tgt.size(1)
        x, y, d = self.tokens[src], self.tokens[tgt], self.tokens.size(1)
        for layer in self.enc:
            x = layer(x, self.rel(0, s, s, True), None)
        x = F.rms_norm(x, (d,), self.last[0], 1e-6)
        future = torch.ones(t, t).triu(1).bool()
        cross_rel = self.rel(2, t, s, True) if self.bias_cross else None
        for layer in self.dec:
            y = layer(y, self.rel(1, t, t, False), future, x, cross_rel)
        return F.rms_norm(y, (d,), self.last[1], 1e-6) @ (self.tokens / d**0.5).t()


def convert(sd, h=3):
    out = {"tokens": sd["shared.weight"], "last": torch.stack([sd["enc_norm.weight"], sd["dec_norm.weight"]])}
    tables = ("encoder.0.SelfAttention", "decoder.0.SelfAttention", "decoder.0.EncDecAttention")
    out["rel_tables"] = torch.stack([sd[n + ".relative_attention_bias.weight"] for n in tables])
    for side, dst in (("encoder", "enc"), ("decoder", "dec")):
        for i in range(2):
            s, d = f"{side}.{i}.", f"{dst}.{i}."
            kinds = [("SelfAttention", "attn")] + ([("EncDecAttention", "cross")] if dst == "dec" else [])
            for a, b in kinds:

                def heads(n):
                    return sd[f"{s}{a}.{n}.weight"].t().unflatten(1, (h, -1)).transpose(0, 1)

                out[f"{d}{b}.wqkv"] = torch.stack([heads(n) for n in "qkv"])
                out[f"{d}{b}.wo"] = sd[f"{s}{a}.o.weight"].t().unflatten(0, (h, -1))
            norms = ["norm_self"] + (["norm_cross"] if dst == "dec" else []) + ["norm_ff"]
            out[d + "gains"] = torch.stack([sd[f"{s}{n}.weight"] for n in norms])
            out[d + "up.weight"], out[d + "down.weight"] = sd[s + "wi.weight"], sd[s + "wo.weight"]
    return out


def build(fixed):
    torch.manual_seed(6)
    original = T5().eval()
    with torch.no_grad():
        for n, p in original.named_parameters():
            if "norm" in n:
                p.add_(0.2 * torch.randn_like(p))
    port = PortedT5(bias_cross=not fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 30, (2, 9)), torch.randint(0, 30, (2, 6)))
