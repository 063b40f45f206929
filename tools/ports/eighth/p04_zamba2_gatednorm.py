"""After huggingface/transformers#35943.

The Zamba2 port in a model library took its gated RMSNorm from the Mamba2 file.  The 1.2B and
2.7B checkpoints agreed with the original mamba-ssm code, the 7B checkpoint (two state-space
groups) did not.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def rms_norm_ref(x, weight, z, eps, group_size):
    x = x * F.silu(z)
    xg = x.unflatten(-1, (-1, group_size))
    rstd = torch.rsqrt(xg.square().mean(-1, keepdim=True) + eps)
    return (xg * rstd).flatten(-2) * weight


class RMSNormGated(nn.Module):
    def __init__(self, hidden_size, eps=1e-5, group_size=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps, self.group_size = eps, group_size or hidden_size

    def forward(self, x, z):
        return rms_norm_ref(x, self.weight, z, self.eps, self.group_size)


class Mamba2(nn.Module):
    def __init__(self, d_model=24, d_state=8, d_conv=4, expand=2, headdim=12, ngroups=2):
        super().__init__()
        self.d_inner, self.d_state, self.ngroups, self.headdim = expand * d_model, d_state, ngroups, headdim
        self.nheads = self.d_inner // headdim
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner + 2 * ngroups * d_state + self.nheads, bias=False)
        conv_dim = self.d_inner + 2 * ngroups * d_state
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, d_conv, groups=conv_dim, padding=d_conv - 1)
        self.dt_bias = nn.Parameter(torch.randn(self.nheads) * 0.5)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, self.nheads + 1).float()))
        self.D = nn.Parameter(torch.randn(self.nheads))
        self.norm = RMSNormGated(self.d_inner, group_size=self.d_inner // ngroups)
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, u):
        b, length, _ = u.shape
        z, xBC, dt = torch.split(self.in_proj(u), [self.d_inner, self.conv1d.in_channels, self.nheads], dim=-1)
        dt = F.softplus(dt + self.dt_bias)
        xBC = F.silu(self.conv1d(xBC.transpose(1, 2))[..., :length].transpose(1, 2))
        gs = self.ngroups * self.d_state
        x, B, C = torch.split(xBC, [self.d_inner, gs, gs], dim=-1)
        x = x.view(b, length, self.nheads, self.headdim)
        rep = self.nheads // self.ngroups
        B = B.view(b, length, self.ngroups, -1).repeat_interleave(rep, dim=2)
        C = C.view(b, length, self.ngroups, -1).repeat_interleave(rep, dim=2)
        dA = torch.exp(dt * -torch.exp(self.A_log))
        state = u.new_zeros(b, self.nheads, self.headdim, self.d_state)
        ys = []
        for t in range(length):
            state = state * dA[:, t, :, None, None] + torch.einsum("bh,bhp,bhn->bhpn", dt[:, t], x[:, t], B[:, t])
            ys.append(torch.einsum("bhpn,bhn->bhp", state, C[:, t]) + self.D[:, None] * x[:, t])
        return self.out_proj(self.norm(torch.stack(ys, 1).flatten(-2), z))


class MambaLM(nn.Module):
    def __init__(self, vocab=50, d=24, n=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d)
        self.norms = nn.ModuleList([nn.RMSNorm(d, eps=1e-5) for _ in range(n)])
        self.mixers = nn.ModuleList([Mamba2(d) for _ in range(n)])
        self.norm_f = nn.RMSNorm(d, eps=1e-5)

    def forward(self, ids):
        h = self.embedding(ids)
        for n, m in zip(self.norms, self.mixers):
            h = h + m(n(h))
        return self.norm_f(h) @ self.embedding.weight.t()


class Zamba2RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        var = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(var + self.variance_epsilon))


class Zamba2RMSNormGated(Zamba2RMSNorm):
    def __init__(self, hidden_size, n_groups, eps=1e-5):
        super().__init__(hidden_size, eps)
        self.n_groups = n_groups

    def forward(self, hidden_states, gate=None):
        if gate is not None:
            hidden_states = hidden_states * F.silu(gate)
        return super().forward(hidden_states)


class Zamba2RMSNormGatedMended(Zamba2RMSNormGated):
    def forward(self, hidden_states, gate=None):
        if gate is not None:
            hidden_states = hidden_states * F.silu(gate)
        *lead, last = hidden_states.shape
        g = hidden_states.view(*lead, self.n_groups, last // self.n_groups)
        g = g * torch.rsqrt(g.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * g.view(*lead, last)


class Zamba2MambaMixer(nn.Module):
    def __init__(self, norm_cls, hidden_size, state_size=8, kernel=4, head_dim=12, n_groups=2):
        super().__init__()
        self.intermediate_size = 2 * hidden_size
        self.num_heads, self.head_dim = self.intermediate_size // head_dim, head_dim
        self.n_groups, self.ssm_state_size, self.kernel = n_groups, state_size, kernel
        self.conv_dim = self.intermediate_size + 2 * n_groups * state_size
        self.in_proj = nn.Linear(hidden_size, self.intermediate_size + self.conv_dim + self.num_heads, bias=False)
        self.conv1d = nn.Conv1d(self.conv_dim, self.conv_dim, kernel, groups=self.conv_dim)
        self.dt_bias = nn.Parameter(torch.ones(self.num_heads))
        self.A_log = nn.Parameter(torch.zeros(self.num_heads))
        self.D = nn.Parameter(torch.ones(self.num_heads))
        self.norm = norm_cls(self.intermediate_size, n_groups)
        self.out_proj = nn.Linear(self.intermediate_size, hidden_size, bias=False)

    def forward(self, hidden_states):
        bsz, seq, _ = hidden_states.shape
        gate, hBC, dt = self.in_proj(hidden_states).split([self.intermediate_size, self.conv_dim, self.num_heads], -1)
        hBC = F.silu(self.conv1d(F.pad(hBC.transpose(1, 2), (self.kernel - 1, 0)))).transpose(1, 2)
        n = self.n_groups * self.ssm_state_size
        x, B, C = hBC.split([self.intermediate_size, n, n], -1)
        rep = self.num_heads // self.n_groups
        x = x.reshape(bsz, seq, self.num_heads, self.head_dim)
        B, C = (t.reshape(bsz, seq, self.n_groups, 1, -1).expand(-1, -1, -1, rep, -1).flatten(2, 3) for t in (B, C))
        dt = F.softplus(dt + self.dt_bias)
        cum = torch.cumsum(dt * -torch.exp(self.A_log.float()), 1)
        decay = torch.exp((cum[:, :, None] - cum[:, None]).clamp(max=0))
        causal = torch.tril(torch.ones(seq, seq))[None, :, :, None]
        scores = torch.einsum("bthn,bshn->btsh", C, B) * decay * causal * dt[:, None]
        y = torch.einsum("btsh,bshp->bthp", scores, x) + x * self.D[:, None]
        return self.out_proj(self.norm(y.reshape(bsz, seq, -1), gate))


class Zamba2MambaDecoderLayer(nn.Module):
    def __init__(self, norm_cls, d):
        super().__init__()
        self.input_layernorm = Zamba2RMSNorm(d)
        self.mamba = Zamba2MambaMixer(norm_cls, d)

    def forward(self, x):
        return x + self.mamba(self.input_layernorm(x))


class Zamba2ForCausalLM(nn.Module):
    def __init__(self, norm_cls, vocab=50, d=24, n=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Zamba2MambaDecoderLayer(norm_cls, d) for _ in range(n)])
        self.final_layernorm = Zamba2RMSNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, input_ids):
        h = self.embed_tokens(input_ids)
        for layer in self.layers:
            h = layer(h)
        return self.lm_head(self.final_layernorm(h))


def convert(sd):
    out = {
        "embed_tokens.weight": sd["embedding.weight"],
        "lm_head.weight": sd["embedding.weight"],
        "final_layernorm.weight": sd["norm_f.weight"],
    }
    for k, v in sd.items():
        if k.startswith("norms."):
            out[f"layers.{k.split('.')[1]}.input_layernorm.weight"] = v
        elif k.startswith("mixers."):
            _, i, rest = k.split(".", 2)
            out[f"layers.{i}.mamba.{rest}"] = v
    return out


def build(fixed):
    torch.manual_seed(8)
    original = MambaLM()
    with torch.no_grad():
        for n, p in original.named_parameters():
            if "norm" in n:
                p.uniform_(0.5, 1.5)
            if n.endswith("mixers.1.in_proj.weight"):
                p.mul_(1.5)
    port = Zamba2ForCausalLM(Zamba2RMSNormGatedMended if fixed else Zamba2RMSNormGated)
    port.load_state_dict(convert(original.state_dict()))
    return original.eval(), port.eval(), (torch.randint(0, 50, (2, 16)),)
