"""srush/annotated-mamba#4: a teaching version of the Mamba block, compared with the authors' code.

The notebook follows the formulas of the paper; loading weights of the authors' code into it gives
outputs that are close, yet not the same.
"""

import torch
import torch.nn.functional as F
from torch import nn


class MambaMixer(nn.Module):
    """As in the authors' repository (plain recurrence)."""

    def __init__(self, d_model, d_state=4, d_conv=4, expand=2, dt_rank=2):
        super().__init__()
        self.d_inner, self.d_state, self.dt_rank = expand * d_model, d_state, dt_rank
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.d_inner, dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, self.d_inner)
        self.A_log = nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(self.d_inner, 1))
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, u):
        L = u.size(1)
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., :L].transpose(1, 2))
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        A = -self.A_log.exp()
        dA = torch.exp(dt[..., None] * A)
        dB = dt[..., None] * B[:, :, None, :]
        h, ys = torch.zeros_like(dA[:, 0]), []
        for t in range(L):
            h = dA[:, t] * h + dB[:, t] * x[:, t, :, None]
            ys.append((h * C[:, t, None, :]).sum(-1))
        y = torch.stack(ys, 1) + x * self.D
        return self.out_proj(y * F.silu(z))


class MambaLM(nn.Module):
    def __init__(self, vocab=40, d_model=12, n_layer=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.norms = nn.ModuleList([nn.RMSNorm(d_model, eps=1e-5) for _ in range(n_layer)])
        self.mixers = nn.ModuleList([MambaMixer(d_model) for _ in range(n_layer)])
        self.norm_f = nn.RMSNorm(d_model, eps=1e-5)

    def forward(self, ids):
        h = self.embedding(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            h = h + mixer(norm(h))
        return self.norm_f(h) @ self.embedding.weight.t()


def discretize(rule, delta, a, b):
    """delta (B,D,1,T), a (D,N,1), b (B,1,N,T)."""
    a_bar = (delta * a).exp()
    if rule == "zoh":
        return a_bar, (a_bar - 1.0) / a * b
    return a_bar, delta * b


class SelectiveSSM(nn.Module):
    """Time last; the recurrence is unrolled as a lower-triangular sum."""

    def __init__(self, width, states=4, taps=4, inner=None, rank=2, rule="zoh"):
        super().__init__()
        inner = inner or 2 * width
        self.rule, self.taps = rule, taps
        self.to_x = nn.Linear(width, inner, bias=False)
        self.to_gate = nn.Linear(width, inner, bias=False)
        self.taps_w = nn.Parameter(torch.empty(inner, taps))
        self.taps_b = nn.Parameter(torch.empty(inner))
        self.to_delta = nn.Sequential(nn.Linear(inner, rank, bias=False), nn.Linear(rank, inner))
        self.to_b = nn.Linear(inner, states, bias=False)
        self.to_c = nn.Linear(inner, states, bias=False)
        self.a = nn.Parameter(torch.empty(inner, states))
        self.skip = nn.Parameter(torch.empty(inner))
        self.out = nn.Linear(inner, width, bias=False)

    def scan(self, a_bar, bx):
        log_a = a_bar.log().cumsum(-1)
        decay = log_a[..., :, None] - log_a[..., None, :]
        T = bx.size(-1)
        keep = torch.ones(T, T).tril().bool()
        return (decay.masked_fill(~keep, float("-inf")).exp() * bx[..., None, :]).sum(-1)

    def forward(self, u):
        x = F.pad(self.to_x(u).mT, (self.taps - 1, 0)).unfold(2, self.taps, 1)
        x = F.silu((x * self.taps_w[:, None, :]).sum(-1) + self.taps_b[:, None])
        xt = x.mT
        delta = F.softplus(self.to_delta(xt)).mT[:, :, None, :]
        b, c = self.to_b(xt).mT[:, None], self.to_c(xt).mT[:, None]
        a_bar, b_bar = discretize(self.rule, delta, self.a[..., None], b)
        state = self.scan(a_bar, b_bar * x[:, :, None, :])
        y = (state * c).sum(2) + self.skip[:, None] * x
        return self.out(y.mT * F.silu(self.to_gate(u)))


class NotebookMamba(nn.Module):
    def __init__(self, symbols=40, width=12, depth=2, rule="zoh"):
        super().__init__()
        self.table = nn.Parameter(torch.empty(symbols, width))
        self.gains = nn.Parameter(torch.empty(depth + 1, width))
        self.blocks = nn.ModuleList([SelectiveSSM(width, rule=rule) for _ in range(depth)])

    def rms(self, x, i):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.gains[i]

    def forward(self, ids):
        x = self.table[ids]
        for i, block in enumerate(self.blocks):
            x = x + block(self.rms(x, i))
        return F.linear(self.rms(x, len(self.blocks)), self.table)


def convert(sd):
    depth = sum(k.startswith("norms.") for k in sd)
    out = {"table": sd["embedding.weight"]}
    out["gains"] = torch.stack([sd[f"norms.{i}.weight"] for i in range(depth)] + [sd["norm_f.weight"]])
    for i in range(depth):
        s, d = f"mixers.{i}.", f"blocks.{i}."
        out[d + "to_x.weight"], out[d + "to_gate.weight"] = sd[s + "in_proj.weight"].chunk(2)
        out[d + "taps_w"], out[d + "taps_b"] = sd[s + "conv1d.weight"].squeeze(1), sd[s + "conv1d.bias"]
        rank = sd[s + "dt_proj.weight"].size(1)
        dt, b, c = sd[s + "x_proj.weight"].split([rank, 4, 4])
        out[d + "to_delta.0.weight"], out[d + "to_b.weight"], out[d + "to_c.weight"] = dt, b, c
        out[d + "to_delta.1.weight"], out[d + "to_delta.1.bias"] = sd[s + "dt_proj.weight"], sd[s + "dt_proj.bias"]
        out[d + "a"], out[d + "skip"] = -sd[s + "A_log"].exp(), sd[s + "D"]
        out[d + "out.weight"] = sd[s + "out_proj.weight"]
    return out


def build(fixed):
    torch.manual_seed(17)
    original = MambaLM().eval()
    with torch.no_grad():
        original.embedding.weight.mul_(0.5)
        for m in original.mixers:
            m.x_proj.weight.mul_(3.0)
            m.A_log.add_(0.2 * torch.randn_like(m.A_log))
            m.out_proj.weight.mul_(2.0)
    port = NotebookMamba(rule="euler" if fixed else "zoh").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 40, (2, 11)),)
