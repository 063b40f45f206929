"""After state-spaces/mamba#580: a selective state-space mixer with a causal depthwise convolution
was re-written without the fused causal_conv1d kernel (plain nn.Conv1d with padding on both sides,
then an indexed slice). The slow path does not return what the kernel path returns."""

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, INNER, STATE, KERNEL = 32, 16, 32, 4, 4


class KernelMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(DIM, 2 * INNER, bias=False)
        self.conv_weight = nn.Parameter(torch.randn(INNER, KERNEL) * 0.4)
        self.conv_bias = nn.Parameter(torch.randn(INNER) * 0.1)
        self.x_proj = nn.Linear(INNER, 1 + 2 * STATE, bias=False)
        self.dt_proj = nn.Linear(1, INNER)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, STATE + 1).float()).repeat(INNER, 1))
        self.D = nn.Parameter(torch.randn(INNER))
        self.out_proj = nn.Linear(INNER, DIM, bias=False)

    def forward(self, hidden):
        u, z = self.in_proj(hidden).chunk(2, -1)
        padded = F.pad(u, (0, 0, KERNEL - 1, 0))
        u = sum(padded[:, j : j + u.shape[1]] * self.conv_weight[:, j] for j in range(KERNEL)) + self.conv_bias
        u = F.silu(u)
        dt, B, C = self.x_proj(u).split([1, STATE, STATE], -1)
        dt = F.softplus(self.dt_proj(dt))
        A = -self.A_log.exp()
        h = u.new_zeros(u.shape[0], INNER, STATE)
        ys = []
        for t in range(u.shape[1]):
            h = h * torch.exp(dt[:, t, :, None] * A) + (dt[:, t] * u[:, t])[..., None] * B[:, t, None]
            ys.append((h * C[:, t, None]).sum(-1))
        y = torch.stack(ys, 1) + u * self.D
        return self.out_proj(y * F.silu(z))


class MambaRef(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2))
        self.mixers = nn.ModuleList(KernelMixer() for _ in range(2))
        self.norm_f = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.embedding(ids)
        for n, m in zip(self.norms, self.mixers):
            x = x + m(n(x))
        return self.norm_f(x)


class ShortConv(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.d_conv = KERNEL
        self.conv1d = nn.Conv1d(INNER, INNER, KERNEL, groups=INNER, padding=KERNEL - 1)
        self.lead = fixed

    def forward(self, x):
        seqlen = x.shape[-1]
        full = self.conv1d(x)
        return full[..., : -(self.d_conv - 1)] if self.lead else full[..., -seqlen:]


class SelectiveScan(nn.Module):
    def __init__(self):
        super().__init__()
        self.neg_a = nn.Parameter(torch.empty(INNER, STATE))
        self.skip = nn.Parameter(torch.empty(INNER, 1))

    def forward(self, u, delta, B, C):
        cum = torch.einsum("bdl,dn->bdln", delta, self.neg_a).cumsum(2)
        L = u.shape[-1]
        decay = (
            (cum[:, :, :, None] - cum[:, :, None])
            .masked_fill(torch.ones(L, L).triu(1).bool()[None, None, :, :, None], float("-inf"))
            .exp()
        )
        y = torch.einsum("bdijn,bnj,bdj,bni->bdi", decay, B, delta * u, C)
        return y + self.skip * u


class SlowMixer(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.proj_u = nn.Linear(DIM, INNER, bias=False)
        self.proj_gate = nn.Linear(DIM, INNER, bias=False)
        self.short_conv = ShortConv(fixed)
        self.to_params = nn.Linear(INNER, 1 + 2 * STATE, bias=False)
        self.to_delta = nn.Linear(1, INNER)
        self.ssm = SelectiveScan()
        self.proj_out = nn.Linear(INNER, DIM, bias=False)

    def forward(self, x):
        gate = F.silu(self.proj_gate(x))
        u = F.silu(self.short_conv(self.proj_u(x).transpose(1, 2)))
        par = self.to_params(u.transpose(1, 2))
        delta = F.softplus(self.to_delta(par[..., :1])).transpose(1, 2)
        B = par[..., 1 : 1 + STATE].transpose(1, 2)
        C = par[..., 1 + STATE :].transpose(1, 2)
        return self.proj_out(self.ssm(u, delta, B, C).transpose(1, 2) * gate)


class SlowMamba(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"ln": nn.LayerNorm(DIM), "mixer": SlowMixer(fixed)}) for _ in range(2)
        )
        self.ln_f = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.wte(ids)
        for layer in self.layers:
            x = layer["mixer"](layer["ln"](x)) + x
        return self.ln_f(x)


def convert(sd):
    out = {"wte.weight": sd["embedding.weight"]}
    for p in ("weight", "bias"):
        out[f"ln_f.{p}"] = sd[f"norm_f.{p}"]
    for i in range(2):
        s, d = f"mixers.{i}.", f"layers.{i}.mixer."
        for p in ("weight", "bias"):
            out[f"layers.{i}.ln.{p}"] = sd[f"norms.{i}.{p}"]
            out[d + f"to_delta.{p}"] = sd[s + f"dt_proj.{p}"]
        out[d + "proj_u.weight"], out[d + "proj_gate.weight"] = sd[s + "in_proj.weight"].chunk(2)
        out[d + "short_conv.conv1d.weight"] = sd[s + "conv_weight"].unsqueeze(1)
        out[d + "short_conv.conv1d.bias"] = sd[s + "conv_bias"]
        out[d + "to_params.weight"] = sd[s + "x_proj.weight"]
        out[d + "ssm.neg_a"] = -sd[s + "A_log"].exp()
        out[d + "ssm.skip"] = sd[s + "D"].unsqueeze(1)
        out[d + "proj_out.weight"] = sd[s + "out_proj.weight"]
    return out


def build(fixed):
    torch.manual_seed(580)
    original = MambaRef().eval()
    port = SlowMamba(fixed).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, VOCAB, (2, 20)),)
