"""state-spaces/mamba#910

A Mamba-2 language model with ngroups=2 was taken over into a simpler module with
split projections and the scan written in its quadratic form.  With ngroups=1 the
two agree to the last digit, with two groups the logits drift apart.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class RMSNormGated(nn.Module):
    def __init__(self, d, group_size, eps=1e-5):
        super().__init__()
        self.weight, self.group_size, self.eps = nn.Parameter(torch.ones(d)), group_size, eps

    def forward(self, x, z):
        x = x * F.silu(z)
        g = x.unflatten(-1, (-1, self.group_size))
        g = g * torch.rsqrt(g.square().mean(-1, keepdim=True) + self.eps)
        return g.flatten(-2) * self.weight


class Mamba2(nn.Module):
    def __init__(self, d_model, d_state, headdim, ngroups, d_conv=4):
        super().__init__()
        self.d_inner, self.d_state, self.headdim, self.ngroups = 2 * d_model, d_state, headdim, ngroups
        self.nheads = self.d_inner // headdim
        conv_dim = self.d_inner + 2 * ngroups * d_state
        self.in_proj = nn.Linear(d_model, self.d_inner + conv_dim + self.nheads, bias=False)
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, d_conv, groups=conv_dim, padding=d_conv - 1)
        self.dt_bias = nn.Parameter(torch.zeros(self.nheads))
        self.A_log, self.D = nn.Parameter(torch.zeros(self.nheads)), nn.Parameter(torch.ones(self.nheads))
        self.norm = RMSNormGated(self.d_inner, self.d_inner // ngroups)
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, u):
        b, length, _ = u.shape
        gn = self.ngroups * self.d_state
        z, xBC, dt = self.in_proj(u).split([self.d_inner, self.d_inner + 2 * gn, self.nheads], -1)
        xBC = F.silu(self.conv1d(xBC.transpose(1, 2))[..., :length].transpose(1, 2))
        x, B, C = xBC.split([self.d_inner, gn, gn], -1)
        x = x.view(b, length, self.nheads, self.headdim)
        rep = self.nheads // self.ngroups
        B = B.view(b, length, self.ngroups, -1).repeat_interleave(rep, 2)
        C = C.view(b, length, self.ngroups, -1).repeat_interleave(rep, 2)
        dt = F.softplus(dt + self.dt_bias)
        decay = torch.exp(-torch.exp(self.A_log) * dt)
        state, ys = x.new_zeros(b, self.nheads, self.headdim, self.d_state), []
        for t in range(length):
            state = state * decay[:, t, :, None, None] + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
            ys.append((state * C[:, t, :, None]).sum(-1))
        y = torch.stack(ys, 1) + self.D[:, None] * x
        return self.out_proj(self.norm(y.reshape(b, length, -1), z))


class Block(nn.Module):
    def __init__(self, d_model, **kw):
        super().__init__()
        self.norm, self.mixer = RMSNorm(d_model), Mamba2(d_model, **kw)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class MambaLMHeadModel(nn.Module):
    def __init__(self, vocab=30, d_model=16, layers=3, **kw):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList(Block(d_model, **kw) for _ in range(layers))
        self.norm_f = RMSNorm(d_model)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm_f(x) @ self.embedding.weight.t()


class GatedNorm(nn.Module):
    def __init__(self, hidden_size, group_size=None):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(hidden_size))
        self.group_size = hidden_size if group_size is None else group_size

    def forward(self, y, gate):
        y = (y * gate * gate.sigmoid()).unflatten(-1, (-1, self.group_size))
        return F.rms_norm(y, (self.group_size,), eps=1e-5).flatten(-2) * self.scale


class Mamba2Simple(nn.Module):
    def __init__(self, d_model, d_state, headdim, ngroups, norm_group_size=None, d_conv=4):
        super().__init__()
        d_inner = 2 * d_model
        self.pre_norm = nn.RMSNorm(d_model, eps=1e-5)
        self.proj_z, self.proj_x = nn.Linear(d_model, d_inner, bias=False), nn.Linear(d_model, d_inner, bias=False)
        self.proj_bc = nn.Linear(d_model, 2 * ngroups * d_state, bias=False)
        self.proj_dt = nn.Linear(d_model, d_inner // headdim)
        self.conv_kernel = nn.Parameter(torch.empty(d_inner + 2 * ngroups * d_state, d_conv))
        self.conv_bias = nn.Parameter(torch.empty(d_inner + 2 * ngroups * d_state))
        self.A, self.skip = nn.Parameter(torch.empty(d_inner // headdim)), nn.Parameter(torch.empty(d_inner // headdim))
        self.gated_norm = GatedNorm(d_inner, norm_group_size)
        self.proj_out = nn.Linear(d_inner, d_model, bias=False)
        self.d_inner, self.ngroups, self.headdim = d_inner, ngroups, headdim

    def short_conv(self, s):
        k = self.conv_kernel.shape[1]
        windows = F.pad(s, (0, 0, k - 1, 0)).unfold(1, k, 1)
        return F.silu((windows * self.conv_kernel).sum(-1) + self.conv_bias)

    def forward(self, hidden):
        u = self.pre_norm(hidden)
        s = self.short_conv(torch.cat([self.proj_x(u), self.proj_bc(u)], -1))
        x = s[..., : self.d_inner].unflatten(-1, (-1, self.headdim))
        B, C = s[..., self.d_inner :].unflatten(-1, (2, self.ngroups, -1)).unbind(2)
        dt = F.softplus(self.proj_dt(u))
        cum = torch.cumsum(self.A * dt, dim=1)
        n = u.shape[1]
        seg = (cum[:, :, None] - cum[:, None]).masked_fill(torch.ones(n, n).triu(1).bool()[..., None], float("-inf"))
        scores = torch.einsum("blgn,bsgn->blsg", C, B).repeat_interleave(x.shape[2] // self.ngroups, -1)
        y = torch.einsum("blsh,bsh,bshp->blhp", scores * seg.exp(), dt, x) + x * self.skip[:, None]
        return hidden + self.proj_out(self.gated_norm(y.flatten(2), self.proj_z(u)))


class SimpleMambaLM(nn.Module):
    def __init__(self, vocab=30, d_model=16, layers=3, **kw):
        super().__init__()
        self.emb = nn.Parameter(torch.empty(vocab, d_model))
        self.body = nn.Sequential(*[Mamba2Simple(d_model, **kw) for _ in range(layers)])
        self.final = nn.RMSNorm(d_model, eps=1e-5)

    def forward(self, tokens):
        return F.linear(self.final(self.body(F.embedding(tokens, self.emb))), self.emb)


def convert(sd):
    out = {"emb": sd["embedding.weight"], "final.weight": sd["norm_f.weight"]}
    for i in range(3):
        s, t = f"layers.{i}.mixer.", f"body.{i}."
        d_inner, heads, cd = sd[s + "norm.weight"].shape[0], sd[s + "D"].shape[0], sd[s + "conv1d.bias"].shape[0]
        parts = sd[s + "in_proj.weight"].split([d_inner, d_inner, cd - d_inner, heads])
        for name, w in zip(("z", "x", "bc", "dt"), parts):
            out[f"{t}proj_{name}.weight"] = w
        out[t + "proj_dt.bias"] = sd[s + "dt_bias"]
        out[t + "conv_kernel"], out[t + "conv_bias"] = sd[s + "conv1d.weight"].squeeze(1), sd[s + "conv1d.bias"]
        out[t + "A"], out[t + "skip"] = -sd[s + "A_log"].exp(), sd[s + "D"]
        out[t + "gated_norm.scale"], out[t + "proj_out.weight"] = sd[s + "norm.weight"], sd[s + "out_proj.weight"]
        out[t + "pre_norm.weight"] = sd[f"layers.{i}.norm.weight"]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(7)
    kw = {"d_state": 4, "headdim": 8, "ngroups": 2}
    original = MambaLMHeadModel(**kw).eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n else 0.0, 0.3)
    port = SimpleMambaLM(norm_group_size=16 if fixed else None, **kw).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 30, (2, 9)),)
