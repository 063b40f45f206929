"""After state-spaces/mamba#910: the 'simple' variant of the block and the full one do not give the
same hidden states with more than one group."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNormGated(nn.Module):
    def __init__(self, hidden, eps=1e-5, group_size=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden) + 0.1 * torch.randn(hidden))
        self.eps, self.group_size = eps, group_size

    def forward(self, x, z):
        x = x * F.silu(z)
        g = x.unflatten(-1, (-1, self.group_size or x.shape[-1]))
        g = g * torch.rsqrt(g.square().mean(-1, keepdim=True) + self.eps)
        return g.flatten(-2) * self.weight


class Mamba2(nn.Module):
    def __init__(self, d_model, d_state, headdim, ngroups, d_conv=4, expand=2):
        super().__init__()
        self.d_ssm, self.d_state, self.headdim, self.ngroups = expand * d_model, d_state, headdim, ngroups
        self.nheads = self.d_ssm // headdim
        conv_dim = self.d_ssm + 2 * ngroups * d_state
        self.in_proj = nn.Linear(d_model, self.d_ssm + conv_dim + self.nheads, bias=False)
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, d_conv, groups=conv_dim, padding=d_conv - 1)
        self.dt_bias = nn.Parameter(torch.randn(self.nheads) * 0.5)
        self.A_log = nn.Parameter(torch.rand(self.nheads).add(0.5).log())
        self.D = nn.Parameter(torch.ones(self.nheads))
        self.norm = RMSNormGated(self.d_ssm, group_size=self.d_ssm // ngroups)
        self.out_proj = nn.Linear(self.d_ssm, d_model, bias=False)

    def forward(self, u):
        b, n, _ = u.shape
        gn = self.ngroups * self.d_state
        z, xBC, dt = self.in_proj(u).split([self.d_ssm, self.d_ssm + 2 * gn, self.nheads], -1)
        xBC = F.silu(self.conv1d(xBC.transpose(1, 2))[..., :n].transpose(1, 2))
        x, B, C = xBC.split([self.d_ssm, gn, gn], -1)
        x = x.view(b, n, self.nheads, self.headdim)
        per = self.nheads // self.ngroups
        B, C = (t.view(b, n, self.ngroups, self.d_state).repeat_interleave(per, 2) for t in (B, C))
        dt = F.softplus(dt + self.dt_bias)
        dA = torch.exp(-dt * self.A_log.exp())
        h = x.new_zeros(b, self.nheads, self.headdim, self.d_state)
        ys = []
        for t in range(n):
            h = h * dA[:, t, :, None, None] + torch.einsum("bh,bhp,bhn->bhpn", dt[:, t], x[:, t], B[:, t])
            ys.append(torch.einsum("bhpn,bhn->bhp", h, C[:, t]))
        y = torch.stack(ys, 1) + self.D[:, None] * x
        return self.out_proj(self.norm(y.flatten(2), z))


class MambaLM(nn.Module):
    def __init__(self, vocab=30, d_model=16, depth=2, **kw):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.norms = nn.ModuleList(nn.RMSNorm(d_model, eps=1e-5) for _ in range(depth + 1))
        self.mixers = nn.ModuleList(Mamba2(d_model, **kw) for _ in range(depth))
        self.lm_head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids):
        h = self.embedding(ids)
        for n, m in zip(self.norms, self.mixers):
            h = h + m(n(h))
        return self.lm_head(self.norms[-1](h))


def rmsnorm_fn(x, weight, z, eps, group_size=None):
    x = x * z * torch.sigmoid(z)
    if group_size is None:
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
    b, n, d = x.shape
    y = x.reshape(b, n, d // group_size, group_size)
    y = y / torch.sqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.reshape(b, n, d) * weight


class Mamba2Simple(nn.Module):
    """Whole-sequence form: the scan as a masked matrix product."""

    def __init__(self, d_model, d_state, headdim, ngroups, norm_group_size=None, d_conv=4, expand=2):
        super().__init__()
        self.d_inner, self.d_state, self.headdim, self.ngroups = expand * d_model, d_state, headdim, ngroups
        self.nheads, self.norm_group_size = self.d_inner // headdim, norm_group_size
        conv_dim = self.d_inner + 2 * ngroups * d_state
        self.z_proj, self.xBC_proj, self.dt_proj = (
            nn.Linear(d_model, self.d_inner, bias=False),
            nn.Linear(d_model, conv_dim, bias=False),
            nn.Linear(d_model, self.nheads),
        )
        self.conv_kernel, self.conv_bias = (
            nn.Parameter(torch.zeros(d_conv, conv_dim)),
            nn.Parameter(torch.zeros(conv_dim)),
        )
        self.A, self.D = nn.Parameter(-torch.ones(self.nheads)), nn.Parameter(torch.ones(self.nheads))
        self.norm_weight = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def causal_conv(self, x):
        k = self.conv_kernel.shape[0]
        xp = F.pad(x, (0, 0, k - 1, 0))
        return sum(xp[:, j : j + x.shape[1]] * self.conv_kernel[j] for j in range(k)) + self.conv_bias

    def ssd(self, x, dt, B, C):
        cum = (dt * self.A).cumsum(1)
        decay = (cum[:, :, None] - cum[:, None]).permute(0, 3, 1, 2)
        L = torch.exp(decay).tril()
        scores = torch.einsum("btgn,bsgn->bgts", C, B).repeat_interleave(self.nheads // self.ngroups, dim=1)
        return torch.einsum("bhts,bsh,bshp->bthp", scores * L, dt, x)

    def forward(self, u):
        b, n, _ = u.shape
        xBC = F.silu(self.causal_conv(self.xBC_proj(u)))
        gn = self.ngroups * self.d_state
        x = xBC[..., : self.d_inner].reshape(b, n, self.nheads, self.headdim)
        B = xBC[..., self.d_inner : self.d_inner + gn].reshape(b, n, self.ngroups, -1)
        C = xBC[..., self.d_inner + gn :].reshape(b, n, self.ngroups, -1)
        y = self.ssd(x, F.softplus(self.dt_proj(u)), B, C) + x * self.D.view(1, 1, -1, 1)
        y = rmsnorm_fn(y.reshape(b, n, -1), self.norm_weight, self.z_proj(u), 1e-5, self.norm_group_size)
        return self.out_proj(y)


class SimpleLM(nn.Module):
    def __init__(self, vocab=30, d_model=16, depth=2, **kw):
        super().__init__()
        self.wte = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList(Mamba2Simple(d_model, **kw) for _ in range(depth))
        self.gains = nn.ParameterList(torch.ones(d_model) for _ in range(depth + 1))
        self.head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids):
        h = self.wte(ids)
        for g, lyr in zip(self.gains, self.layers):
            h = lyr(F.rms_norm(h, h.shape[-1:], g, 1e-5)) + h
        return self.head(F.rms_norm(h, h.shape[-1:], self.gains[-1], 1e-5))


def convert(lm, depth=2):
    s, o = {k: v.detach() for k, v in lm.state_dict().items()}, {}
    o["wte.weight"], o["head.weight"] = s["embedding.weight"], s["lm_head.weight"]
    for i in range(depth + 1):
        o[f"gains.{i}"] = s[f"norms.{i}.weight"]
    for i, m in enumerate(lm.mixers):
        a, b = f"mixers.{i}.", f"layers.{i}."
        sizes = [m.d_ssm, m.d_ssm + 2 * m.ngroups * m.d_state, m.nheads]
        o[b + "z_proj.weight"], o[b + "xBC_proj.weight"], o[b + "dt_proj.weight"] = s[a + "in_proj.weight"].split(sizes)
        o[b + "dt_proj.bias"], o[b + "A"], o[b + "D"] = s[a + "dt_bias"], -s[a + "A_log"].exp(), s[a + "D"]
        o[b + "conv_kernel"], o[b + "conv_bias"] = s[a + "conv1d.weight"][:, 0].t(), s[a + "conv1d.bias"]
        o[b + "norm_weight"], o[b + "out_proj.weight"] = s[a + "norm.weight"], s[a + "out_proj.weight"]
    return o


def build(fixed):
    torch.manual_seed(910)
    kw = {"d_state": 6, "headdim": 8, "ngroups": 4}
    original = MambaLM(**kw).eval()
    port = SimpleLM(**kw, **({"norm_group_size": 8} if fixed else {})).eval()
    port.load_state_dict(convert(original))
    return original, port, (torch.randint(0, 30, (2, 12)),)
