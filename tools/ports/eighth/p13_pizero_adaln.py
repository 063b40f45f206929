"""After lucidrains/pi-zero-pytorch#9.

An independent PyTorch version of the pi-zero robot policy; a reader compared its action branch
with the block it is meant to implement and asked about one line in the forward function.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class AdaptiveNorm(nn.Module):
    def __init__(self, dim, dim_cond):
        super().__init__()
        self.scale = dim**0.5
        self.to_gamma = nn.Linear(dim_cond, dim)
        self.to_beta = nn.Linear(dim_cond, dim, bias=False)

    def forward(self, x, cond):
        normed = F.normalize(x, dim=-1) * self.scale
        return normed * self.to_gamma(cond).sigmoid()[:, None] + self.to_beta(cond)[:, None]


class AdaptiveGate(nn.Module):
    def __init__(self, dim, dim_cond):
        super().__init__()
        self.proj = nn.Linear(dim_cond, dim)
        nn.init.constant_(self.proj.bias, -1.0)

    def forward(self, x, cond):
        return x * self.proj(cond).sigmoid()[:, None]


class ReferenceActionBlock(nn.Module):
    def __init__(self, dim, dim_cond, heads, dim_state):
        super().__init__()
        self.heads = heads
        self.norm_attn, self.gate_attn = AdaptiveNorm(dim, dim_cond), AdaptiveGate(dim, dim_cond)
        self.q, self.kv, self.out = (
            nn.Linear(dim, dim, bias=False),
            nn.Linear(dim_state, 2 * dim, bias=False),
            nn.Linear(dim, dim, bias=False),
        )
        self.norm_ff, self.gate_ff = AdaptiveNorm(dim, dim_cond), AdaptiveGate(dim, dim_cond)
        self.ff_in, self.ff_out = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim)

    def forward(self, a, ctx, cond):
        h = self.norm_attn(a, cond)
        q = self.q(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.kv(ctx).chunk(2, -1))
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        a = a + self.gate_attn(self.out(h), cond)
        h = self.norm_ff(a, cond)
        x, g = self.ff_in(h).chunk(2, -1)
        return self.gate_ff(self.ff_out(x * F.gelu(g)) + h, cond)


class ReferencePolicy(nn.Module):
    def __init__(self, action_dim=7, state_dim=10, dim=32, dim_cond=24, depth=3, heads=4):
        super().__init__()
        self.embed_state = nn.Linear(state_dim, dim)
        self.embed_action = nn.Linear(action_dim, dim)
        self.time = nn.Sequential(nn.Linear(16, dim_cond), nn.SiLU())
        self.blocks = nn.ModuleList([ReferenceActionBlock(dim, dim_cond, heads, dim) for _ in range(depth)])
        self.final_norm, self.to_flow = nn.RMSNorm(dim, eps=1e-12), nn.Linear(dim, action_dim, bias=False)

    def forward(self, actions, states, times):
        f = times[:, None] * (torch.exp(-math.log(1e4) * torch.arange(8) / 8) * 1000)
        cond = self.time(torch.cat([f.sin(), f.cos()], -1))
        ctx, a = self.embed_state(states), self.embed_action(actions)
        for block in self.blocks:
            a = block(a, ctx, cond)
        return self.to_flow(self.final_norm(a))


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale, self.gamma = dim**0.5, nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.normalize(x, dim=-1) * self.scale * self.gamma


class AdaptiveRMSNorm(nn.Module):
    def __init__(self, dim, dim_cond):
        super().__init__()
        self.dim_scale = dim**0.5
        self.to_gamma = nn.Sequential(nn.Linear(dim_cond, dim), nn.Sigmoid())
        self.to_beta = nn.Linear(dim_cond, dim, bias=False)

    def forward(self, actions, cond):
        normed = F.normalize(actions, dim=-1) * self.dim_scale
        gamma, beta = self.to_gamma(cond), self.to_beta(cond)
        return torch.einsum("bnd,bd->bnd", normed, gamma) + beta.unsqueeze(1)


class AdaptiveLayerscale(nn.Module):
    def __init__(self, dim, dim_cond):
        super().__init__()
        self.to_adaln_zero_gamma = nn.Linear(dim_cond, dim)

    def forward(self, actions, cond):
        return torch.einsum("bnd,bd->bnd", actions, self.to_adaln_zero_gamma(cond).sigmoid())


class SwiGLUFeedForward(nn.Module):
    def __init__(self, dim, expand=4):
        super().__init__()
        inner = dim * expand // 2
        self.proj_in, self.proj_gate, self.proj_out = (
            nn.Linear(dim, inner),
            nn.Linear(dim, inner),
            nn.Linear(inner, dim),
        )

    def forward(self, x):
        return self.proj_out(self.proj_in(x) * F.gelu(self.proj_gate(x)))


class Attention(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_actions_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_state_k = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_state_v = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, actions, states):
        q, k, v = self.to_actions_q(actions), self.to_state_k(states), self.to_state_v(states)
        q, k, v = (t.view(*t.shape[:2], self.heads, -1) for t in (q, k, v))
        sim = torch.einsum("bihd,bjhd->bhij", q * self.scale, k)
        return self.to_out(torch.einsum("bhij,bjhd->bihd", sim.softmax(-1), v).flatten(2))


class PiZeroLayer(nn.Module):
    def __init__(self, dim, dim_cond, heads):
        super().__init__()
        self.attn, self.actions_ff = Attention(dim, heads, dim // heads), SwiGLUFeedForward(dim)
        self.attn_ada_rmsnorm, self.attn_ada_layerscale = (
            AdaptiveRMSNorm(dim, dim_cond),
            AdaptiveLayerscale(dim, dim_cond),
        )
        self.ff_ada_rmsnorm, self.ff_ada_layerscale = AdaptiveRMSNorm(dim, dim_cond), AdaptiveLayerscale(dim, dim_cond)

    def attend(self, action_tokens, state_tokens, time_cond):
        attn_out = self.attn(self.attn_ada_rmsnorm(action_tokens, time_cond), state_tokens)
        return self.attn_ada_layerscale(attn_out, time_cond) + action_tokens

    def forward(self, action_tokens, state_tokens, time_cond):
        action_tokens = self.attend(action_tokens, state_tokens, time_cond)
        action_tokens = self.ff_ada_rmsnorm(action_tokens, time_cond)
        action_tokens = self.actions_ff(action_tokens) + action_tokens
        action_tokens = self.ff_ada_rmsnorm(action_tokens, time_cond)
        return action_tokens


class PiZeroLayerMended(PiZeroLayer):
    def forward(self, action_tokens, state_tokens, time_cond):
        action_tokens = self.attend(action_tokens, state_tokens, time_cond)
        action_tokens = self.ff_ada_rmsnorm(action_tokens, time_cond)
        return self.ff_ada_layerscale(self.actions_ff(action_tokens) + action_tokens, time_cond)


class PiZero(nn.Module):
    def __init__(self, layer, dim=32, dim_action=7, dim_state=10, dim_cond=24, depth=3, heads=4):
        super().__init__()
        self.state_to_tokens, self.action_to_tokens = nn.Linear(dim_state, dim), nn.Linear(dim_action, dim)
        self.register_buffer("freqs", torch.exp(-math.log(1e4) * torch.arange(8) / 8) * 1000, persistent=False)
        self.to_time_cond = nn.Linear(16, dim_cond)
        self.layers = nn.ModuleList([layer(dim, dim_cond, heads) for _ in range(depth)])
        self.final_actions_norm, self.actions_to_pred_flow = RMSNorm(dim), nn.Linear(dim, dim_action, bias=False)

    def forward(self, actions, states, times):
        ang = torch.outer(times, self.freqs)
        time_cond = F.silu(self.to_time_cond(torch.cat((ang.sin(), ang.cos()), dim=-1)))
        state_tokens, action_tokens = self.state_to_tokens(states), self.action_to_tokens(actions)
        for layer in self.layers:
            action_tokens = layer(action_tokens, state_tokens, time_cond)
        return self.actions_to_pred_flow(self.final_actions_norm(action_tokens))


def convert(sd):
    names = [
        ("embed_state", "state_to_tokens"),
        ("embed_action", "action_to_tokens"),
        ("time.0", "to_time_cond"),
        ("blocks", "layers"),
        ("final_norm.weight", "final_actions_norm.gamma"),
        ("to_flow", "actions_to_pred_flow"),
        ("to_gamma", "to_gamma.0"),
        ("norm_attn", "attn_ada_rmsnorm"),
        ("norm_ff", "ff_ada_rmsnorm"),
        ("gate_attn.proj", "attn_ada_layerscale.to_adaln_zero_gamma"),
        ("gate_ff.proj", "ff_ada_layerscale.to_adaln_zero_gamma"),
        (".q.", ".attn.to_actions_q."),
        (".out.", ".attn.to_out."),
        ("ff_out", "actions_ff.proj_out"),
    ]
    out = {}
    for k, v in sd.items():
        for a, b in names:
            k = k.replace(a, b)
        if ".kv." in k:
            out[k.replace("kv", "attn.to_state_k")], out[k.replace("kv", "attn.to_state_v")] = v.chunk(2)
        elif ".ff_in." in k:
            out[k.replace("ff_in", "actions_ff.proj_in")], out[k.replace("ff_in", "actions_ff.proj_gate")] = v.chunk(2)
        else:
            out[k] = v
    return out


def build(fixed):
    torch.manual_seed(29)
    original = ReferencePolicy().eval()
    port = PiZero(PiZeroLayerMended if fixed else PiZeroLayer).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randn(2, 8, 7), torch.randn(2, 6, 10), torch.tensor([0.15, 0.8]))
