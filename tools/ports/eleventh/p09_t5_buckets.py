"""After huggingface/candle#727.

T5 encoder re-written for another tensor library.  Short inputs give the embeddings of
transformers, longer inputs do not.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, H, KV, FF, L = 40, 24, 3, 8, 32, 2
NB, MAXD = 16, 64


class T5LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(D).uniform_(0.6, 1.4))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class T5Attention(nn.Module):
    def __init__(self, has_bias):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, H * KV, bias=False) for _ in range(3))
        self.o = nn.Linear(H * KV, D, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(NB, H)

    def compute_bias(self, n):
        rel = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        half = NB // 2
        bucket = (rel > 0).long() * half
        rel = rel.abs()
        exact = half // 2
        far = exact + (torch.log(rel.float().clamp(min=1) / exact) / math.log(MAXD / exact) * (half - exact)).long()
        bucket = bucket + torch.where(rel < exact, rel, far.clamp(max=half - 1))
        return self.relative_attention_bias(bucket).permute(2, 0, 1)[None]

    def forward(self, x, bias=None):
        b, n, _ = x.shape
        bias = self.compute_bias(n) if bias is None else bias
        q, k, v = (p(x).view(b, n, H, KV).transpose(1, 2) for p in (self.q, self.k, self.v))
        w = (q @ k.transpose(-1, -2) + bias).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, -1)), bias


class T5Block(nn.Module):
    def __init__(self, has_bias):
        super().__init__()
        self.norm_0, self.norm_1 = T5LayerNorm(), T5LayerNorm()
        self.SelfAttention = T5Attention(has_bias)
        self.wi, self.wo = nn.Linear(D, FF, bias=False), nn.Linear(FF, D, bias=False)

    def forward(self, x, bias):
        y, bias = self.SelfAttention(self.norm_0(x), bias)
        x = x + y
        return x + self.wo(F.relu(self.wi(self.norm_1(x)))), bias


class T5Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(V, D)
        self.block = nn.ModuleList(T5Block(i == 0) for i in range(L))
        self.final_layer_norm = T5LayerNorm()

    def forward(self, ids):
        x, bias = self.shared(ids), None
        for blk in self.block:
            x, bias = blk(x, bias)
        return self.final_layer_norm(x)


def bucket_of(i, j, fixed, half=NB // 2, max_exact=NB // 4):
    base, gap = (half, j - i) if i < j else (0, i - j)
    if gap < max_exact:
        return base + gap
    if fixed:
        step = int(math.log(gap / max_exact) / math.log(MAXD / max_exact) * (half - max_exact))
    else:
        step = gap - max_exact
    return base + min(max_exact + step, half - 1)


class RelativeBias(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.table = nn.Parameter(torch.empty(H, NB))

    def forward(self, n):
        rows = [[bucket_of(i, j, self.fixed) for j in range(n)] for i in range(n)]
        return self.table[:, torch.tensor(rows)]


class RmsScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(D))

    def forward(self, x):
        return F.rms_norm(x, (D,), self.scale, 1e-6)


class CandleLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_attn, self.ln_ff = RmsScale(), RmsScale()
        self.qkv = nn.Linear(D, 3 * H * KV, bias=False)
        self.out = nn.Linear(H * KV, D, bias=False)
        self.ff = nn.Sequential(nn.Linear(D, FF, bias=False), nn.ReLU(), nn.Linear(FF, D, bias=False))

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.ln_attn(x)).view(b, n, 3, H, KV).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(b, -1, -1, -1), scale=1.0)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.ff(self.ln_ff(x))


class CandleT5Encoder(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.position_bias = RelativeBias(fixed)
        self.stack = nn.ModuleList(CandleLayer() for _ in range(L))
        self.ln_out = RmsScale()

    def forward(self, ids):
        mask = self.position_bias(ids.shape[1])[None]
        x = self.embed(ids)
        for layer in self.stack:
            x = layer(x, mask)
        return self.ln_out(x)


def convert(sd):
    new = {
        "embed.weight": sd["shared.weight"],
        "ln_out.scale": sd["final_layer_norm.weight"],
        "position_bias.table": sd["block.0.SelfAttention.relative_attention_bias.weight"].T.contiguous(),
    }
    for i in range(L):
        o, n = f"block.{i}.", f"stack.{i}."
        new[n + "ln_attn.scale"], new[n + "ln_ff.scale"] = sd[o + "norm_0.weight"], sd[o + "norm_1.weight"]
        new[n + "qkv.weight"] = torch.cat([sd[o + f"SelfAttention.{c}.weight"] for c in "qkv"])
        new[n + "out.weight"] = sd[o + "SelfAttention.o.weight"]
        new[n + "ff.0.weight"], new[n + "ff.2.weight"] = sd[o + "wi.weight"], sd[o + "wo.weight"]
    return new


def build(fixed):
    torch.manual_seed(727)
    original = T5Encoder().eval()
    with torch.no_grad():
        original.block[0].SelfAttention.relative_attention_bias.weight.mul_(2)
        for blk in original.block:
            blk.SelfAttention.v.weight.mul_(2), blk.SelfAttention.o.weight.mul_(2)
    port = CandleT5Encoder(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, V, (2, 28)),)
