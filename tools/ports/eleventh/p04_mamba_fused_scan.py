"""After ml-explore/mlx-lm#1153.

A Mamba-1 language model gets a second, fused code path: one routine that does
softplus, discretisation and scan.  Compared with the plain implementation on the same
weights, logits differ and generation runs apart after a few tokens.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, DI, N, R, KW, L = 30, 16, 32, 6, 4, 4, 2


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(d))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


class MambaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(D, 2 * DI, bias=False)
        self.conv1d = nn.Conv1d(DI, DI, KW, groups=DI, padding=KW - 1)
        self.x_proj = nn.Linear(DI, R + 2 * N, bias=False)
        self.dt_proj = nn.Linear(R, DI)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, N + 1).float()).repeat(DI, 1))
        self.D = nn.Parameter(torch.randn(DI))
        self.out_proj = nn.Linear(DI, D, bias=False)
        nn.init.uniform_(self.dt_proj.bias, -2.5, 0.5)

    def ssm_step(self, x, A, state):
        delta, B, C = self.x_proj(x).split([R, N, N], -1)
        delta = F.softplus(self.dt_proj(delta))
        new = (delta * x)[:, :, None] * B[:, None, :]
        if state is not None:
            new = new + state * torch.exp(delta[:, :, None] * A)
        y = (new * C[:, None, :]).sum(-1)
        return y + self.D * x, new

    def forward(self, u):
        x, z = self.in_proj(u).chunk(2, -1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., : u.shape[1]]).transpose(1, 2)
        A = -torch.exp(self.A_log)
        state, ys = None, []
        for t in range(u.shape[1]):
            y, state = self.ssm_step(x[:, t], A, state)
            ys.append(y)
        return self.out_proj(torch.stack(ys, 1) * F.silu(z))


class ResidualBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixer = MambaBlock()
        self.norm = RMSNorm(D)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(V, D)
        self.layers = nn.ModuleList(ResidualBlock() for _ in range(L))
        self.norm_f = RMSNorm(D)

    def forward(self, ids):
        x = self.embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm_f(x) @ self.embeddings.weight.T


def selective_scan(x, dt, a, b, c, skip, dt_bias):
    """x, dt: (B, C, T); b, c: (B, N, T); one pass over time."""
    dt = F.softplus(dt + dt_bias[:, None])
    decay = torch.exp(torch.einsum("bct,cn->bctn", dt, a))
    drive = torch.einsum("bct,bnt->bctn", dt * x, b)
    h = x.new_zeros(x.shape[0], x.shape[1], a.shape[1])
    out = torch.empty_like(x)
    for t in range(x.shape[-1]):
        h = torch.addcmul(drive[:, :, t], decay[:, :, t], h)
        out[:, :, t] = torch.einsum("bcn,bn->bc", h, c[..., t])
    return torch.addcmul(out, x, skip[:, None])


class FusedMixer(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed
        self.proj_x = nn.Parameter(torch.empty(DI, D))
        self.proj_z = nn.Parameter(torch.empty(DI, D))
        self.taps = nn.Parameter(torch.empty(DI, KW))
        self.taps_bias = nn.Parameter(torch.empty(DI))
        self.to_dt = nn.Linear(DI, R, bias=False)
        self.to_b = nn.Linear(DI, N, bias=False)
        self.to_c = nn.Linear(DI, N, bias=False)
        self.dt_proj = nn.Linear(R, DI)
        self.a = nn.Parameter(torch.empty(DI, N))
        self.skip = nn.Parameter(torch.empty(DI))
        self.out = nn.Linear(DI, D, bias=False)

    def forward(self, u):
        x = F.pad(F.linear(u, self.proj_x).mT, (KW - 1, 0))
        x = F.silu((x.unfold(-1, KW, 1) * self.taps[:, None]).sum(-1) + self.taps_bias[:, None])
        xt = x.mT
        dt = self.dt_proj(self.to_dt(xt))
        if self.fixed:
            dt = dt - self.dt_proj.bias
        y = selective_scan(x, dt.mT, self.a, self.to_b(xt).mT, self.to_c(xt).mT, self.skip, self.dt_proj.bias)
        return self.out(y.mT * F.silu(F.linear(u, self.proj_z)))


class FusedMamba(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.wte = nn.Embedding(V, D)
        self.norms = nn.ModuleList(RMSNorm(D) for _ in range(L))
        self.mixers = nn.ModuleList(FusedMixer(fixed) for _ in range(L))
        self.ln = RMSNorm(D)

    def forward(self, ids):
        h = self.wte(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            h = mixer(norm(h)) + h
        return F.linear(self.ln(h), self.wte.weight)


def convert(sd):
    new = {"wte.weight": sd["embeddings.weight"], "ln.weight": sd["norm_f.weight"]}
    for i in range(L):
        o, n = f"layers.{i}.mixer.", f"mixers.{i}."
        new[f"norms.{i}.weight"] = sd[f"layers.{i}.norm.weight"]
        new[n + "proj_x"], new[n + "proj_z"] = sd[o + "in_proj.weight"].chunk(2)
        new[n + "taps"], new[n + "taps_bias"] = sd[o + "conv1d.weight"].squeeze(1), sd[o + "conv1d.bias"]
        for k, w in zip(("to_dt", "to_b", "to_c"), sd[o + "x_proj.weight"].split([R, N, N])):
            new[n + k + ".weight"] = w
        new[n + "dt_proj.weight"], new[n + "dt_proj.bias"] = sd[o + "dt_proj.weight"], sd[o + "dt_proj.bias"]
        new[n + "a"], new[n + "skip"] = -sd[o + "A_log"].exp(), sd[o + "D"]
        new[n + "out.weight"] = sd[o + "out_proj.weight"]
    return new


def build(fixed):
    torch.manual_seed(1153)
    original = Mamba().eval()
    with torch.no_grad():
        for layer in original.layers:
            layer.mixer.x_proj.weight.mul_(4)
            layer.mixer.out_proj.weight.mul_(4)
    port = FusedMamba(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, V, (2, 12)),)
