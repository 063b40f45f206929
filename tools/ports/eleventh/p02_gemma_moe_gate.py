"""After NVIDIA-NeMo/Automodel#1852.

Gemma-4 style MoE decoder layers re-implemented for training.  Same checkpoint as the
reference, but token log-probs drift away from it; the RL run shows a high KL error
between trainer and generator.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

D, FF, E, K, V, L, H = 24, 20, 6, 2, 40, 2, 3


class RMSNorm(nn.Module):
    def __init__(self, dim, scale=True, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.5 * torch.randn(dim)) if scale else None

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x if self.weight is None else x * self.weight


class HFAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(D, D, bias=False)
        self.k_proj = nn.Linear(D, D, bias=False)
        self.v_proj = nn.Linear(D, D, bias=False)
        self.o_proj = nn.Linear(D, D, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, H, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, D))


class HFRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(D, scale=False)
        self.scale = nn.Parameter(1 + 0.4 * torch.randn(D))
        self.proj = nn.Linear(D, E, bias=False)

    def forward(self, x):
        p = self.proj(self.norm(x) * self.scale).softmax(-1)
        w, idx = p.topk(K, -1)
        return w / w.sum(-1, keepdim=True), idx


class HFExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = nn.Parameter(torch.randn(E, 2 * FF, D) / D**0.5)
        self.down = nn.Parameter(torch.randn(E, D, FF) / FF**0.5)

    def forward(self, x, w, idx):
        out = torch.zeros_like(x)
        for e in range(E):
            tok, slot = torch.where(idx == e)
            g, u = F.linear(x[tok], self.gate_up[e]).chunk(2, -1)
            y = F.linear(F.gelu(g, approximate="tanh") * u, self.down[e])
            out.index_add_(0, tok, y * w[tok, slot, None])
        return out


class HFLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = RMSNorm(D)
        self.self_attn = HFAttention()
        self.post_attention_layernorm = RMSNorm(D)
        self.router = HFRouter()
        self.pre_feedforward_layernorm_2 = RMSNorm(D)
        self.experts = HFExperts()
        self.post_feedforward_layernorm_2 = RMSNorm(D)

    def forward(self, x):
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x)))
        residual = x
        flat = residual.reshape(-1, D)
        w, idx = self.router(flat)
        y = self.experts(self.pre_feedforward_layernorm_2(flat), w, idx).view_as(x)
        return residual + self.post_feedforward_layernorm_2(y)


class HFGemmaMoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, D)
        self.layers = nn.ModuleList(HFLayer() for _ in range(L))
        self.norm = RMSNorm(D)

    def forward(self, ids):
        x = self.embed_tokens(ids) * D**0.5
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed_tokens.weight.T


class FusedQKV(nn.Module):
    def __init__(self):
        super().__init__()
        self.wqkv = nn.Linear(D, 3 * D, bias=False)
        self.wo = nn.Linear(D, D, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.wqkv(x).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        s = (q @ k.transpose(-1, -2)) * (D // H) ** -0.5
        s = s.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        return self.wo((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = RMSNorm(D, scale=False)
        self.weight = nn.Parameter(torch.empty(E, D))

    def forward(self, x):
        logits = F.linear(self.pre(x), self.weight)
        top, idx = logits.topk(K, -1)
        combine = torch.zeros_like(logits).scatter(-1, idx, top.softmax(-1))
        return combine


class GroupedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(E, D, FF))
        self.w3 = nn.Parameter(torch.empty(E, D, FF))
        self.w2 = nn.Parameter(torch.empty(E, FF, D))

    def forward(self, x, combine):
        h = F.gelu(torch.einsum("nd,edf->enf", x, self.w1), approximate="tanh") * torch.einsum(
            "nd,edf->enf", x, self.w3
        )
        return torch.einsum("enf,efd,ne->nd", h, self.w2, combine)


class MoEBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.experts = GroupedExperts()

    def forward(self, x, gate_input):
        return self.experts(x, self.gate(gate_input))


class AutoGemmaBlock(nn.Module):
    def __init__(self, gate_from):
        super().__init__()
        self.gate_from = gate_from
        self.norm1, self.norm2 = RMSNorm(D), RMSNorm(D)
        self.norm3, self.norm4 = RMSNorm(D), RMSNorm(D)
        self.attn = FusedQKV()
        self.moe = MoEBlock()

    def forward(self, x):
        x = x + self.norm2(self.attn(self.norm1(x)))
        h = self.norm3(x).flatten(0, 1)
        source = x.flatten(0, 1) if self.gate_from == "stream" else h
        y = self.moe(h, source)
        return x + self.norm4(y).view(x.shape)


class AutoGemmaMoE(nn.Module):
    def __init__(self, gate_from):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.blocks = nn.Sequential(*[AutoGemmaBlock(gate_from) for _ in range(L)])
        self.final = RMSNorm(D)

    def forward(self, ids):
        return F.linear(self.final(self.blocks(self.tok(ids) * D**0.5)), self.tok.weight)


def convert(sd):
    new = {"tok.weight": sd["embed_tokens.weight"], "final.weight": sd["norm.weight"]}
    for i in range(L):
        o, n = f"layers.{i}.", f"blocks.{i}."
        for a, b in (
            ("input_layernorm", "norm1"),
            ("post_attention_layernorm", "norm2"),
            ("pre_feedforward_layernorm_2", "norm3"),
            ("post_feedforward_layernorm_2", "norm4"),
        ):
            new[n + b + ".weight"] = sd[o + a + ".weight"]
        new[n + "attn.wqkv.weight"] = torch.cat([sd[o + f"self_attn.{c}_proj.weight"] for c in "qkv"])
        new[n + "attn.wo.weight"] = sd[o + "self_attn.o_proj.weight"]
        new[n + "moe.gate.weight"] = sd[o + "router.proj.weight"] * sd[o + "router.scale"]
        g, u = sd[o + "experts.gate_up"].chunk(2, 1)
        new[n + "moe.experts.w1"] = g.transpose(1, 2).contiguous()
        new[n + "moe.experts.w3"] = u.transpose(1, 2).contiguous()
        new[n + "moe.experts.w2"] = sd[o + "experts.down"].transpose(1, 2).contiguous()
    return new


def build(fixed):
    torch.manual_seed(1852)
    original = HFGemmaMoE().eval()
    with torch.no_grad():
        original.embed_tokens.weight.mul_(0.3)
    port = AutoGemmaMoE("stream" if fixed else "normed").eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, V, (2, 9)),)
