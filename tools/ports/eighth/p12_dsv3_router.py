"""After pytorch/torchtitan#1448.

Someone loaded a Moonlight-16B checkpoint (DeepSeek-V3 architecture) into a training library's
own implementation to fine-tune it; after the conversion the gradient norm was very high.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DeepseekV3MLP(nn.Module):
    def __init__(self, h, i):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(h, i, bias=False),
            nn.Linear(h, i, bias=False),
            nn.Linear(i, h, bias=False),
        )

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DeepseekV3TopkRouter(nn.Module):
    def __init__(self, h, n, k, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, h) / h**0.5)
        self.register_buffer("e_score_correction_bias", torch.randn(n) * 0.1)
        self.top_k, self.routed_scaling_factor, self.norm_topk_prob = k, scale, True

    def forward(self, x):
        scores = F.linear(x, self.weight).sigmoid()
        idx = (scores + self.e_score_correction_bias).topk(self.top_k, dim=-1).indices
        w = scores.gather(1, idx)
        if self.norm_topk_prob:
            w = w / (w.sum(-1, keepdim=True) + 1e-20)
        return idx, w * self.routed_scaling_factor


class DeepseekV3MoE(nn.Module):
    def __init__(self, h, i, n, k, scale):
        super().__init__()
        self.gate = DeepseekV3TopkRouter(h, n, k, scale)
        self.experts = nn.ModuleList([DeepseekV3MLP(h, i) for _ in range(n)])
        self.shared_experts = DeepseekV3MLP(h, i)

    def forward(self, hidden):
        x = hidden.flatten(0, 1)
        idx, w = self.gate(x)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            tok, slot = (idx == e).nonzero(as_tuple=True)
            out.index_add_(0, tok, expert(x[tok]) * w[tok, slot, None])
        return out.view_as(hidden) + self.shared_experts(hidden)


class DeepseekV3Layer(nn.Module):
    def __init__(self, h, heads, mlp):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(h, eps=1e-6), nn.RMSNorm(h, eps=1e-6)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(h, h, bias=False) for _ in range(4))
        self.mlp, self.heads = mlp, heads

    def forward(self, x):
        y = self.input_layernorm(x)
        q, k, v = (
            p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        x = x + self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


class DeepseekV3ForCausalLM(nn.Module):
    def __init__(self, vocab=60, h=32, i=24, n=6, k=2, scale=2.446):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, h)
        self.layers = nn.ModuleList(
            [DeepseekV3Layer(h, 4, DeepseekV3MLP(h, 64))]
            + [DeepseekV3Layer(h, 4, DeepseekV3MoE(h, i, n, k, scale)) for _ in range(2)]
        )
        self.norm, self.lm_head = nn.RMSNorm(h, eps=1e-6), nn.Linear(h, vocab, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden, n):
        super().__init__()
        self.w1, self.w3 = nn.Parameter(torch.zeros(n, hidden, dim)), nn.Parameter(torch.zeros(n, hidden, dim))
        self.w2 = nn.Parameter(torch.zeros(n, dim, hidden))

    def forward(self, x, counts):
        outs = [
            (F.silu(t @ self.w1[e].mT) * (t @ self.w3[e].mT)) @ self.w2[e].mT for e, t in enumerate(x.split(counts))
        ]
        return torch.cat(outs)


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, dim, num_experts, top_k, score_func="sigmoid", route_scale=1.0):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.top_k, self.score_func, self.route_scale, self.num_experts = top_k, score_func, route_scale, num_experts

    def score(self, x):
        logits = self.gate(x)
        return logits.sigmoid() if self.score_func == "sigmoid" else logits.softmax(-1)

    def forward(self, x, expert_bias):
        scores = self.score(x)
        _, selected = torch.topk(scores + expert_bias, k=self.top_k, dim=1)
        top_scores = scores.gather(dim=1, index=selected)
        return top_scores * self.route_scale, selected


class TokenChoiceTopKRouterMended(TokenChoiceTopKRouter):
    def forward(self, x, expert_bias):
        top_scores, selected = super().forward(x, expert_bias)
        return top_scores / top_scores.sum(1, keepdim=True) * self.route_scale, selected


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, hidden, bias=False),
            nn.Linear(hidden, dim, bias=False),
            nn.Linear(dim, hidden, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoE(nn.Module):
    def __init__(self, router, dim, hidden, n, k, scale):
        super().__init__()
        self.router, self.experts = router(dim, n, k, route_scale=scale), GroupedExperts(dim, hidden, n)
        self.shared_expert = FeedForward(dim, hidden)
        self.register_buffer("expert_bias", torch.zeros(n))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        top_scores, selected = self.router(flat, self.expert_bias)
        order = selected.flatten().argsort(stable=True)
        tokens = order // self.router.top_k
        counts = torch.bincount(selected.flatten(), minlength=self.router.num_experts).tolist()
        routed = self.experts(flat[tokens], counts) * top_scores.flatten()[order, None]
        return (self.shared_expert(flat).index_add(0, tokens, routed)).view_as(x)


class TransformerBlock(nn.Module):
    def __init__(self, dim, heads, ffn):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.ffn, self.heads = ffn, heads

    def forward(self, x):
        b, t, d = x.shape
        y = self.attention_norm(x)
        q, k, v = (w(y).view(b, t, self.heads, -1) for w in (self.wq, self.wk, self.wv))
        a = torch.einsum("bqhd,bkhd->bhqk", q, k) * (d // self.heads) ** -0.5
        a = a.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), float("-inf")).softmax(-1)
        x = x + self.wo(torch.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, t, d))
        return x + self.ffn(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self, router, vocab=60, dim=32, hidden=24, n=6, k=2, scale=2.446):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            [TransformerBlock(dim, 4, FeedForward(dim, 64))]
            + [TransformerBlock(dim, 4, MoE(router, dim, hidden, n, k, scale)) for _ in range(2)]
        )
        self.norm, self.output = nn.RMSNorm(dim, eps=1e-6), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


def from_hf(sd, n=6):
    names = [
        ("embed_tokens", "tok_embeddings"),
        ("lm_head", "output"),
        ("input_layernorm", "attention_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("q_proj", "wq"),
        ("k_proj", "wk"),
        ("v_proj", "wv"),
        ("o_proj", "wo"),
        ("mlp.", "ffn."),
        ("gate.weight", "router.gate.weight"),
        ("gate.e_score_correction_bias", "expert_bias"),
        ("shared_experts", "shared_expert"),
        ("gate_proj", "w1"),
        ("up_proj", "w3"),
        ("down_proj", "w2"),
    ]
    out, stacks = {}, {}
    for k, v in sd.items():
        for a, b in names:
            k = k.replace(a, b)
        if ".experts." in k:
            head, tail = k.split(".experts.")
            e, w, _ = tail.split(".")
            stacks.setdefault(f"{head}.experts.{w}", {})[int(e)] = v
        else:
            out[k] = v
    return out | {k: torch.stack([v[e] for e in range(n)]) for k, v in stacks.items()}


def build(fixed):
    torch.manual_seed(13)
    original = DeepseekV3ForCausalLM().eval()
    port = Transformer(TokenChoiceTopKRouterMended if fixed else TokenChoiceTopKRouter).eval()
    port.load_state_dict(from_hf(original.state_dict()))
    return original, port, (torch.randint(0, 60, (2, 12)),)
