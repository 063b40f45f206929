"""After pytorch/torchtitan#1448: continuing from a converted mixture-of-experts checkpoint starts with
a very high gradient norm; the training code's router is not quite that of the release."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class HFExpert(nn.Module):
    def __init__(self, d, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(d, inner, bias=False),
            nn.Linear(d, inner, bias=False),
            nn.Linear(inner, d, bias=False),
        )

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class HFTopkRouter(nn.Module):
    def __init__(self, d, n_experts, top_k, routed_scaling_factor, norm_topk_prob=True):
        super().__init__()
        self.top_k, self.routed_scaling_factor, self.norm_topk_prob = top_k, routed_scaling_factor, norm_topk_prob
        self.weight = nn.Parameter(torch.randn(n_experts, d) * 0.4)
        self.register_buffer("e_score_correction_bias", torch.randn(n_experts) * 0.05)

    def forward(self, x):
        scores = F.linear(x, self.weight).sigmoid()
        idx = torch.topk(scores + self.e_score_correction_bias, self.top_k, dim=-1, sorted=False)[1]
        w = scores.gather(1, idx)
        if self.norm_topk_prob:
            w = w / (w.sum(-1, keepdim=True) + 1e-20)
        return idx, w * self.routed_scaling_factor


class HFMoE(nn.Module):
    def __init__(self, d, inner, n_experts, top_k, scale):
        super().__init__()
        self.gate = HFTopkRouter(d, n_experts, top_k, scale)
        self.experts = nn.ModuleList(HFExpert(d, inner) for _ in range(n_experts))
        self.shared_experts = HFExpert(d, inner)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        idx, w = self.gate(flat)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            tok, slot = torch.where(idx == e)
            if tok.numel():
                out.index_add_(0, tok, expert(flat[tok]) * w[tok, slot, None])
        return out.view_as(x) + self.shared_experts(x)


class HFDecoder(nn.Module):
    def __init__(self, vocab=40, d=20, inner=16, experts=6, top_k=3, depth=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.input_norm = nn.ModuleList(nn.RMSNorm(d, eps=1e-6) for _ in range(depth))
        self.rnn = nn.ModuleList(nn.GRU(d, d, batch_first=True) for _ in range(depth))
        self.post_norm = nn.ModuleList(nn.RMSNorm(d, eps=1e-6) for _ in range(depth))
        self.mlp = nn.ModuleList(
            [HFExpert(d, 2 * inner)] + [HFMoE(d, inner, experts, top_k, 2.4) for _ in range(depth - 1)]
        )
        self.norm, self.lm_head = nn.RMSNorm(d, eps=1e-6), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for n1, rnn, n2, mlp in zip(self.input_norm, self.rnn, self.post_norm, self.mlp):
            x = x + rnn(n1(x))[0]
            x = x + mlp(n2(x))
        return self.lm_head(self.norm(x))


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, dim, num_experts, top_k, route_scale=1.0, route_norm=False):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.num_experts, self.top_k, self.route_scale, self.route_norm = num_experts, top_k, route_scale, route_norm

    def forward(self, x, expert_bias):
        scores = torch.sigmoid(self.gate(x))
        _, selected = torch.topk(scores + expert_bias, k=self.top_k, dim=1)
        top_scores = scores.gather(dim=1, index=selected)
        if self.route_norm:
            top_scores = top_scores / (top_scores.sum(dim=-1, keepdim=True) + 1e-20)
        top_scores = top_scores * self.route_scale
        num_tokens_per_expert = torch.bincount(selected.view(-1), minlength=self.num_experts)
        order = torch.argsort(selected.view(-1), stable=True)
        return top_scores.view(-1)[order], order // self.top_k, num_tokens_per_expert


class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.w2 = nn.Parameter(torch.empty(num_experts, hidden, dim))
        self.w3 = nn.Parameter(torch.empty(num_experts, dim, hidden))

    def forward(self, x, counts):
        outs = []
        for e, xe in enumerate(torch.split(x, counts.tolist())):
            outs.append(torch.matmul(F.silu(xe @ self.w1[e]) * (xe @ self.w3[e]), self.w2[e]))
        return torch.cat(outs)


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
    def __init__(self, dim, hidden, num_experts, **router):
        super().__init__()
        self.router = TokenChoiceTopKRouter(dim, num_experts, **router)
        self.experts = GroupedExperts(dim, hidden, num_experts)
        self.shared_expert = FeedForward(dim, hidden)
        self.register_buffer("expert_bias", torch.zeros(num_experts))

    def forward(self, x):
        bs, slen, dim = x.shape
        x = x.view(-1, dim)
        top_scores, token_idx, counts = self.router(x, self.expert_bias)
        routed = self.experts(x[token_idx], counts) * top_scores.unsqueeze(-1)
        out = self.shared_expert(x).scatter_add(0, token_idx[:, None].expand(-1, dim), routed)
        return out.view(bs, slen, dim)


class Transformer(nn.Module):
    def __init__(self, router, vocab=40, d=20, inner=16, experts=6, depth=3):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList()
        for i in range(depth):
            ff = FeedForward(d, 2 * inner) if i == 0 else MoE(d, inner, experts, **router)
            self.layers.append(
                nn.ModuleDict(
                    {
                        "mixer_norm": nn.RMSNorm(d, eps=1e-6),
                        "mixer": nn.GRU(d, d, batch_first=True),
                        "ffn_norm": nn.RMSNorm(d, eps=1e-6),
                        "ff": ff,
                    }
                )
            )
        self.norm, self.output = nn.RMSNorm(d, eps=1e-6), nn.Linear(d, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for lyr in self.layers:
            h = h + lyr["mixer"](lyr["mixer_norm"](h))[0]
            h = h + lyr["ff"](lyr["ffn_norm"](h))
        return self.output(self.norm(h))


def from_hf(s, depth=3, experts=6):
    o = {
        "tok_embeddings.weight": s["embed_tokens.weight"],
        "norm.weight": s["norm.weight"],
        "output.weight": s["lm_head.weight"],
    }
    ws = (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3"))
    names = {"input_norm": "mixer_norm", "post_norm": "ffn_norm", "rnn": "mixer"}
    for k, v in s.items():
        p = k.split(".")
        if p[0] in ("input_norm", "post_norm", "rnn"):
            o[f"layers.{p[1]}.{names[p[0]]}.{p[2]}"] = v
    for i in range(depth):
        a, b = f"mlp.{i}.", f"layers.{i}.ff."
        for x, y in ws:
            if i == 0:
                o[f"{b}{y}.weight"] = s[f"{a}{x}.weight"]
            else:
                o[f"{b}shared_expert.{y}.weight"] = s[f"{a}shared_experts.{x}.weight"]
                o[f"{b}experts.{y}"] = torch.stack([s[f"{a}experts.{e}.{x}.weight"].t() for e in range(experts)])
        if i:
            o[b + "router.gate.weight"], o[b + "expert_bias"] = (
                s[a + "gate.weight"],
                s[a + "gate.e_score_correction_bias"],
            )
    return o


def build(fixed):
    torch.manual_seed(1448)
    original = HFDecoder().eval()
    router = {"top_k": 3, "route_scale": 2.4}
    if fixed:
        router["route_norm"] = True
    port = Transformer(router).eval()
    port.load_state_dict(from_hf(original.state_dict()))
    return original, port, (torch.randint(0, 40, (2, 9)),)
