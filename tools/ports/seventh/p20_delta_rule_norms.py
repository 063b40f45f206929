"""After NeuraLegion/shainet#176: a hybrid delta-rule language model loaded into another runtime is
worse than chance at next-token prediction; the first hidden states are already far too small."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class OffsetRMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d) * 0.2)
        self.eps = eps

    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * (1.0 + self.weight.float())).type_as(x)


class GatedRMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d) + 0.1 * torch.randn(d))
        self.eps = eps

    def forward(self, x, gate):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)) * F.silu(gate)


class GatedDeltaNet(nn.Module):
    def __init__(self, d, heads, hd):
        super().__init__()
        self.heads, self.hd = heads, hd
        self.in_proj_qkvz = nn.Linear(d, 4 * heads * hd, bias=False)
        self.in_proj_ba = nn.Linear(d, 2 * heads, bias=False)
        self.A_log, self.dt_bias = nn.Parameter(torch.rand(heads)), nn.Parameter(torch.randn(heads) * 0.3)
        self.norm = GatedRMSNorm(hd)
        self.out_proj = nn.Linear(heads * hd, d, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v, z = (u.view(b, t, self.heads, self.hd) for u in self.in_proj_qkvz(x).chunk(4, -1))
        beta, a = self.in_proj_ba(x).chunk(2, -1)
        g = -self.A_log.exp() * F.softplus(a + self.dt_bias)
        q, k = F.normalize(q, dim=-1) * self.hd**-0.5, F.normalize(k, dim=-1)
        S = x.new_zeros(b, self.heads, self.hd, self.hd)
        outs = []
        for i in range(t):
            S = S * g[:, i].exp()[..., None, None]
            mem = torch.einsum("bhkv,bhk->bhv", S, k[:, i])
            delta = (v[:, i] - mem) * beta[:, i].sigmoid()[..., None]
            S = S + k[:, i].unsqueeze(-1) * delta.unsqueeze(-2)
            outs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, i]))
        y = self.norm(torch.stack(outs, 1), z)
        return self.out_proj(y.flatten(2))


class HybridLayer(nn.Module):
    def __init__(self, d, heads, hd):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = OffsetRMSNorm(d), OffsetRMSNorm(d)
        self.linear_attn = GatedDeltaNet(d, heads, hd)
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(2 * d, d, bias=False),
        )

    def forward(self, x):
        x = x + self.linear_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class HybridLM(nn.Module):
    def __init__(self, vocab=40, d=24, heads=2, hd=8, depth=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(HybridLayer(d, heads, hd) for _ in range(depth))
        self.norm = OffsetRMSNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for lyr in self.layers:
            x = lyr(x)
        return self.lm_head(self.norm(x))


class RMSNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.gamma, 1e-6)


class DeltaMixer(nn.Module):
    def __init__(self, d, heads, hd):
        super().__init__()
        self.heads, self.hd = heads, hd
        self.wq, self.wk, self.wv, self.wz = (nn.Linear(d, heads * hd, bias=False) for _ in range(4))
        self.wb, self.wa = nn.Linear(d, heads, bias=False), nn.Linear(d, heads)
        self.decay = nn.Parameter(torch.zeros(heads))
        self.out_norm = RMSNorm(hd)
        self.wo = nn.Linear(heads * hd, d, bias=False)

    def forward(self, x):
        def split(y):
            return y.unflatten(-1, (self.heads, self.hd)).transpose(1, 2)

        q, k, v, z = split(self.wq(x)), split(self.wk(x)), split(self.wv(x)), split(self.wz(x))
        q = q / q.norm(dim=-1, keepdim=True).clamp_min(1e-12) / self.hd**0.5
        k = k / k.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        rate = torch.sigmoid(self.wb(x)).transpose(1, 2).unsqueeze(-1)
        keep = torch.exp(self.decay * F.softplus(self.wa(x))).transpose(1, 2).unsqueeze(-1)
        state = torch.zeros(*k.shape[:2], self.hd, self.hd)
        y = torch.empty_like(v)
        for t in range(x.shape[1]):
            state = keep[:, :, t, :, None] * state
            kt = k[:, :, t, :, None]
            err = v[:, :, t] - (state * kt).sum(-2)
            state = state + kt * (rate[:, :, t] * err).unsqueeze(-2)
            y[:, :, t] = (state * q[:, :, t, :, None]).sum(-2)
        y = self.out_norm(y) * F.silu(z)
        return self.wo(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d, heads, hd):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(d), RMSNorm(d)
        self.mixer = DeltaMixer(d, heads, hd)
        self.gate_up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        x = self.mixer(self.norm1(x)) + x
        g, u = self.gate_up(self.norm2(x)).chunk(2, -1)
        return self.down(g * torch.sigmoid(g) * u) + x


class ShaiTransformer(nn.Module):
    def __init__(self, vocab=40, d=24, heads=2, hd=8, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(Layer(d, heads, hd) for _ in range(depth))
        self.final_norm, self.out = RMSNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids)
        for lyr in self.layers:
            x = lyr(x)
        return self.out(self.final_norm(x))


def load_safetensors(s, norm_offset, depth=2):
    o = {
        "tok.weight": s["embed_tokens.weight"],
        "out.weight": s["lm_head.weight"],
        "final_norm.gamma": s["norm.weight"] + norm_offset,
    }
    for i in range(depth):
        a, b = f"layers.{i}.", f"layers.{i}.mixer."
        for n, w in zip("qkvz", s[a + "linear_attn.in_proj_qkvz.weight"].chunk(4)):
            o[f"{b}w{n}.weight"] = w
        o[b + "wb.weight"], o[b + "wa.weight"] = s[a + "linear_attn.in_proj_ba.weight"].chunk(2)
        o[b + "wa.bias"], o[b + "decay"] = s[a + "linear_attn.dt_bias"], -s[a + "linear_attn.A_log"].exp()
        o[b + "out_norm.gamma"], o[b + "wo.weight"] = (
            s[a + "linear_attn.norm.weight"],
            s[a + "linear_attn.out_proj.weight"],
        )
        o[a + "norm1.gamma"] = s[a + "input_layernorm.weight"] + norm_offset
        o[a + "norm2.gamma"] = s[a + "post_attention_layernorm.weight"] + norm_offset
        o[a + "gate_up.weight"] = torch.cat([s[a + "gate_proj.weight"], s[a + "up_proj.weight"]])
        o[a + "down.weight"] = s[a + "down_proj.weight"]
    return o


def build(fixed):
    torch.manual_seed(176)
    original = HybridLM().eval()
    port = ShaiTransformer().eval()
    port.load_state_dict(load_safetensors(original.state_dict(), 1.0 if fixed else 0.0))
    return original, port, (torch.randint(0, 40, (2, 11)),)
