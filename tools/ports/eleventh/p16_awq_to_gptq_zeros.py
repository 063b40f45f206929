"""After AutoGPTQ/AutoGPTQ#484.

Running AWQ checkpoints through GPTQ-style linear layers.  The packed weights are
repacked into the GPTQ layout (rows packed along the input axis, zeros stored less one),
but the logits are wrong for some layers.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, FF, L, G = 32, 16, 32, 2, 8
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack_cols(x, order):
    x = x.view(x.shape[0], -1, 8)[:, :, order].to(torch.int64)
    return (x << (4 * torch.arange(8))).sum(-1)


def unpack_cols(p, order):
    x = (p[..., None] >> (4 * torch.arange(8))) & 15
    inv = torch.argsort(torch.tensor(order))
    return x[..., inv].flatten(1)


class WQLinear(nn.Module):
    """AWQ: qweight (in, out/8), qzeros (in/G, out/8), scales (in/G, out)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        w = torch.randn(n_in, n_out) / n_in**0.5
        w[:, ::4] = w[:, ::4].abs()
        grp = w.view(n_in // G, G, n_out)
        lo, hi = grp.amin(1).clamp(max=0), grp.amax(1).clamp(min=0)
        s = (hi - lo) / 15
        z = (-lo / s).round().clamp(0, 15)
        q = ((grp / s[:, None]).round() + z[:, None]).clamp(0, 15).view(n_in, n_out)
        self.register_buffer("qweight", pack_cols(q, ORDER))
        self.register_buffer("qzeros", pack_cols(z, ORDER))
        self.register_buffer("scales", s)

    def forward(self, x):
        q, z = unpack_cols(self.qweight, ORDER), unpack_cols(self.qzeros, ORDER)
        w = (q - z.repeat_interleave(G, 0)) * self.scales.repeat_interleave(G, 0)
        return x @ w


class AWQBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(D, eps=1e-6)
        self.gate_proj, self.up_proj = WQLinear(D, FF), WQLinear(D, FF)
        self.down_proj = WQLinear(FF, D)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class AWQModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, D)
        self.layers = nn.ModuleList(AWQBlock() for _ in range(L))
        self.norm = nn.RMSNorm(D, eps=1e-6)
        self.lm_head = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids).cumsum(1)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class QuantLinear(nn.Module):
    """GPTQ: qweight (in/8, out), qzeros (in/G, out/8), scales (in/G, out), g_idx (in)."""

    def __init__(self, n_in, n_out, fixed):
        super().__init__()
        self.fixed = fixed
        self.register_buffer("qweight", torch.zeros(n_in // 8, n_out, dtype=torch.int64))
        self.register_buffer("qzeros", torch.zeros(n_in // G, n_out // 8, dtype=torch.int64))
        self.register_buffer("scales", torch.zeros(n_in // G, n_out))
        self.register_buffer("g_idx", torch.arange(n_in) // G)
        self.register_buffer("wf", 4 * torch.arange(8), persistent=False)

    def forward(self, x):
        zeros = torch.bitwise_and(self.qzeros[..., None] >> self.wf, 15).flatten(1) + 1
        if self.fixed:
            zeros = torch.bitwise_and(zeros, 15)
        weight = torch.bitwise_and(self.qweight[:, None] >> self.wf[:, None], 15).flatten(0, 1)
        weight = self.scales[self.g_idx] * (weight - zeros[self.g_idx])
        return F.linear(x, weight.t())


class GPTQModel(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.wte = nn.Embedding(V, D)
        self.norms = nn.ModuleList(nn.RMSNorm(D, eps=1e-6) for _ in range(L + 1))
        self.mlp = nn.ModuleList(
            nn.ModuleDict(
                {"w1": QuantLinear(D, FF, fixed), "w3": QuantLinear(D, FF, fixed), "w2": QuantLinear(FF, D, fixed)}
            )
            for _ in range(L)
        )
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        h = torch.cumsum(self.wte(ids), dim=1)
        for norm, m in zip(self.norms, self.mlp):
            y = norm(h)
            h = m["w2"](m["w3"](y) * F.silu(m["w1"](y))) + h
        return self.head(self.norms[-1](h))


def repack(qweight, qzeros, scales):
    q, z = unpack_cols(qweight, ORDER), unpack_cols(qzeros, ORDER)
    q = (q.view(-1, 8, q.shape[1]) << (4 * torch.arange(8))[:, None]).sum(1)
    z = ((z - 1) & 15).view(z.shape[0], -1, 8)
    return {"qweight": q, "qzeros": (z << (4 * torch.arange(8))).sum(-1), "scales": scales}


def convert(sd):
    new = {
        "wte.weight": sd["embed_tokens.weight"],
        "head.weight": sd["lm_head.weight"],
        f"norms.{L}.weight": sd["norm.weight"],
    }
    for i in range(L):
        new[f"norms.{i}.weight"] = sd[f"layers.{i}.norm.weight"]
        for a, b in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
            o = f"layers.{i}.{a}."
            n_in = sd[o + "qweight"].shape[0]
            for k, v in repack(sd[o + "qweight"], sd[o + "qzeros"], sd[o + "scales"]).items():
                new[f"mlp.{i}.{b}.{k}"] = v
            new[f"mlp.{i}.{b}.g_idx"] = torch.arange(n_in) // G
    return new


def build(fixed):
    torch.manual_seed(484)
    original = AWQModel().eval()
    port = GPTQModel(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, V, (2, 6)),)
