"""sgl-project/sglang#35160

A mixture-of-experts decoder (norm_topk_prob=False, as Qwen2-MoE) was moved to fused
expert weights and a top-k that works on the router's logits.  No error is raised,
but every text the ported decoder writes is nonsense.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class MLP(nn.Module):
    def __init__(self, d, ff):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, ff, bias=False), nn.Linear(d, ff, bias=False)
        self.down_proj = nn.Linear(ff, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SparseMoeBlock(nn.Module):
    def __init__(self, d, ff, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(d, num_experts, bias=False)
        self.experts = nn.ModuleList(MLP(d, ff) for _ in range(num_experts))
        self.shared_expert = MLP(d, ff)
        self.shared_expert_gate = nn.Linear(d, 1, bias=False)
        self.top_k = top_k

    def forward(self, hidden):
        x = hidden.reshape(-1, hidden.shape[-1])
        weights, picked = self.gate(x).softmax(-1).topk(self.top_k, dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(picked == e)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        out = out + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return out.view_as(hidden)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.o_proj = nn.Linear(d, d, bias=False)
        self.heads = heads

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (m(x).view(b, n, self.heads, -1).transpose(1, 2) for m in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))


class DecoderLayer(nn.Module):
    def __init__(self, d, heads, ff, num_experts, top_k):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(d), Attention(d, heads)
        self.post_attention_layernorm, self.mlp = RMSNorm(d), SparseMoeBlock(d, ff, num_experts, top_k)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class MoeForCausalLM(nn.Module):
    def __init__(self, vocab=40, d=16, heads=2, ff=24, num_experts=6, top_k=2, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(DecoderLayer(d, heads, ff, num_experts, top_k) for _ in range(layers))
        self.norm, self.lm_head = RMSNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def topk_from_logits(logits, k, renormalize):
    vals, ids = torch.topk(logits, k, dim=-1)
    if renormalize:
        vals = F.softmax(vals, dim=-1)
    return vals, ids


def topk_softmax(logits, k, renormalize):
    vals, ids = topk_from_logits(logits, k, False)
    probs = torch.exp(vals - torch.logsumexp(logits, -1, keepdim=True))
    return (probs / probs.sum(-1, keepdim=True) if renormalize else probs), ids


class FusedMoE(nn.Module):
    def __init__(self, d, ff, num_experts, top_k, select):
        super().__init__()
        self.router = nn.Parameter(torch.empty(num_experts, d))
        self.w13 = nn.Parameter(torch.empty(num_experts, 2 * ff, d))
        self.w2 = nn.Parameter(torch.empty(num_experts, d, ff))
        self.shared_w13, self.shared_w2 = nn.Linear(d, 2 * ff, bias=False), nn.Linear(ff, d, bias=False)
        self.shared_gate = nn.Linear(d, 1, bias=False)
        self.top_k, self.select, self.renormalize = top_k, select, False

    def forward(self, x):
        topk_weights, topk_ids = self.select(x @ self.router.t(), self.top_k, self.renormalize)
        gate, up = torch.einsum("td,tkfd->tkf", x, self.w13[topk_ids]).chunk(2, -1)
        y = torch.einsum("tkf,tkdf->tkd", F.silu(gate) * up, self.w2[topk_ids])
        y = (y * topk_weights.unsqueeze(-1)).sum(1)
        gate, up = self.shared_w13(x).chunk(2, -1)
        return y + self.shared_w2(F.silu(gate) * up) * self.shared_gate(x).sigmoid()


class RunnerLayer(nn.Module):
    def __init__(self, d, heads, ff, num_experts, top_k, select):
        super().__init__()
        self.norm_attn, self.norm_mlp = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
        self.qkv_proj, self.o_proj = nn.Linear(d, 3 * d), nn.Linear(d, d, bias=False)
        self.experts = FusedMoE(d, ff, num_experts, top_k, select)
        self.heads = heads

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv_proj(self.norm_attn(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        att = (q @ k.mT) * (d // self.heads) ** -0.5
        att = att.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")).softmax(-1)
        x = x + self.o_proj((att @ v).transpose(1, 2).flatten(2))
        return x + self.experts(self.norm_mlp(x).flatten(0, 1)).view(b, n, d)


class MoeRunner(nn.Module):
    def __init__(self, vocab=40, d=16, heads=2, ff=24, num_experts=6, top_k=2, layers=2, select=topk_from_logits):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.h = nn.ModuleList(RunnerLayer(d, heads, ff, num_experts, top_k, select) for _ in range(layers))
        self.ln_f, self.head = nn.RMSNorm(d, eps=1e-6), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.wte(ids)
        for layer in self.h:
            x = layer(x)
        return self.head(self.ln_f(x))


def convert(sd):
    out = {
        "wte.weight": sd["embed_tokens.weight"],
        "ln_f.weight": sd["norm.weight"],
        "head.weight": sd["lm_head.weight"],
    }
    for i in range(2):
        s, t = f"layers.{i}.", f"h.{i}."
        for w in ("weight", "bias"):
            out[t + "qkv_proj." + w] = torch.cat([sd[f"{s}self_attn.{c}_proj.{w}"] for c in "qkv"])
        out[t + "o_proj.weight"] = sd[s + "self_attn.o_proj.weight"]
        out[t + "norm_attn.weight"] = sd[s + "input_layernorm.weight"]
        out[t + "norm_mlp.weight"] = sd[s + "post_attention_layernorm.weight"]
        m = s + "mlp."
        n = sd[m + "gate.weight"].shape[0]
        gu = [torch.cat([sd[f"{m}experts.{e}.{g}_proj.weight"] for g in ("gate", "up")]) for e in range(n)]
        out[t + "experts.router"] = sd[m + "gate.weight"]
        out[t + "experts.w13"] = torch.stack(gu)
        out[t + "experts.w2"] = torch.stack([sd[f"{m}experts.{e}.down_proj.weight"] for e in range(n)])
        out[t + "experts.shared_w13.weight"] = torch.cat(
            [sd[f"{m}shared_expert.{g}_proj.weight"] for g in ("gate", "up")]
        )
        out[t + "experts.shared_w2.weight"] = sd[m + "shared_expert.down_proj.weight"]
        out[t + "experts.shared_gate.weight"] = sd[m + "shared_expert_gate.weight"]
    return {k: v.clone() for k, v in out.items()}


def build(fixed):
    torch.manual_seed(3)
    original = MoeForCausalLM().eval()
    for n, p in original.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in n else 0.0, 0.3 if p.ndim > 1 else 0.1)
    port = MoeRunner(select=topk_softmax if fixed else topk_from_logits).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 40, (2, 7)),)
