"""After vllm-project/vllm#12002: the serving engine's grouped top-k of a large mixture-of-experts model
gives other expert weights than the vendor's inference code."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VendorGate(nn.Module):
    def __init__(self, dim, n_experts, n_groups, topk_groups, topk, route_scale):
        super().__init__()
        self.n_groups, self.topk_groups, self.topk, self.route_scale = n_groups, topk_groups, topk, route_scale
        self.weight = nn.Parameter(torch.randn(n_experts, dim) * 0.35)
        self.bias = nn.Parameter(torch.randn(n_experts) * 0.3)

    def forward(self, x):
        scores = F.linear(x, self.weight).sigmoid()
        original_scores = scores
        scores = scores + self.bias
        scores = scores.view(x.size(0), self.n_groups, -1)
        group_scores = scores.topk(2, dim=-1)[0].sum(dim=-1)
        indices = group_scores.topk(self.topk_groups, dim=-1)[1]
        mask = torch.ones_like(group_scores, dtype=torch.bool).scatter_(1, indices, False)
        scores = scores.masked_fill(mask.unsqueeze(-1), float("-inf")).flatten(1)
        indices = torch.topk(scores, self.topk, dim=-1)[1]
        weights = original_scores.gather(1, indices)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights * self.route_scale, indices


class VendorExpert(nn.Module):
    def __init__(self, dim, inter):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, inter, bias=False),
            nn.Linear(inter, dim, bias=False),
            nn.Linear(dim, inter, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class VendorMoE(nn.Module):
    def __init__(self, dim=24, inter=12, n=8):
        super().__init__()
        self.gate = VendorGate(dim, n, 4, 2, 3, 2.5)
        self.experts = nn.ModuleList(VendorExpert(dim, inter) for _ in range(n))
        self.shared_experts = VendorExpert(dim, 2 * inter)

    def forward(self, x):
        shape = x.size()
        x = x.view(-1, shape[-1])
        weights, indices = self.gate(x)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            idx, top = torch.where(indices == i)
            y[idx] += expert(x[idx]) * weights[idx, top, None]
        return (y + self.shared_experts(x)).view(shape)


class VendorModel(nn.Module):
    def __init__(self, vocab=32, dim=24, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.conv = nn.ModuleList(nn.Conv1d(dim, dim, 3, groups=dim) for _ in range(depth))
        self.norm = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.ffn = nn.ModuleList(VendorMoE(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h = self.embed(tokens)
        for conv, norm, ffn in zip(self.conv, self.norm, self.ffn):
            h = h + conv(F.pad(h.transpose(1, 2), (2, 0))).transpose(1, 2)
            h = h + ffn(norm(h))
        return self.head(h)


def grouped_topk(gating_output, topk, renormalize, num_expert_group, topk_group, e_score_correction_bias, fixed):
    scores = gating_output.sigmoid()
    num_token = scores.shape[0]
    if fixed:
        original_scores = scores
        scores = scores + e_score_correction_bias.unsqueeze(0)
    else:
        scores = scores + e_score_correction_bias.unsqueeze(0)
        original_scores = scores
    group_scores = scores.view(num_token, num_expert_group, -1).topk(2, dim=-1)[0].sum(dim=-1)
    group_idx = torch.topk(group_scores, k=topk_group, dim=-1, sorted=False)[1]
    group_mask = torch.zeros_like(group_scores).scatter_(1, group_idx, 1)
    score_mask = (
        group_mask.unsqueeze(-1)
        .expand(num_token, num_expert_group, scores.shape[-1] // num_expert_group)
        .reshape(num_token, -1)
    )
    tmp_scores = scores.masked_fill(~score_mask.bool(), float("-inf"))
    topk_ids = torch.topk(tmp_scores, k=topk, dim=-1, sorted=False)[1]
    topk_weights = original_scores.gather(1, topk_ids)
    if renormalize:
        topk_weights = topk_weights / topk_weights.sum(dim=-1, keepdim=True)
    return topk_weights, topk_ids


class FusedMoE(nn.Module):
    def __init__(self, hidden, inter, n, fixed):
        super().__init__()
        self.w13 = nn.Parameter(torch.zeros(n, 2 * inter, hidden))
        self.w2 = nn.Parameter(torch.zeros(n, hidden, inter))
        self.n, self.fixed = n, fixed

    def forward(self, x, logits, bias):
        w, ids = grouped_topk(logits, 3, True, 4, 2, bias, self.fixed)
        dense = torch.zeros_like(logits).scatter_(1, ids, w)
        g, u = torch.einsum("td,eid->tei", x, self.w13).chunk(2, -1)
        y = torch.einsum("tei,edi->ted", F.silu(g) * u, self.w2)
        return torch.einsum("te,ted->td", dense, y)


class DeepseekMoE(nn.Module):
    def __init__(self, fixed, hidden=24, inter=12, n=8):
        super().__init__()
        self.gate = nn.Linear(hidden, n, bias=False)
        self.e_score_correction_bias = nn.Parameter(torch.zeros(n))
        self.experts = FusedMoE(hidden, inter, n, fixed)
        self.shared_gate_up, self.shared_down = (
            nn.Linear(hidden, 4 * inter, bias=False),
            nn.Linear(2 * inter, hidden, bias=False),
        )

    def forward(self, h):
        x = h.flatten(0, -2)
        g, u = self.shared_gate_up(x).chunk(2, -1)
        shared = self.shared_down(F.silu(g) * u)
        return (self.experts(x, self.gate(x), self.e_score_correction_bias) * 2.5 + shared).view_as(h)


class EngineModel(nn.Module):
    def __init__(self, fixed, vocab=32, hidden=24, depth=3):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.taps = nn.ParameterList(torch.zeros(3, hidden) for _ in range(depth))
        self.tap_bias = nn.ParameterList(torch.zeros(hidden) for _ in range(depth))
        self.ln = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(depth))
        self.mlp = nn.ModuleList(DeepseekMoE(fixed, hidden) for _ in range(depth))
        self.lm_head = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        h = self.embed_tokens(tokens)
        for taps, b, ln, mlp in zip(self.taps, self.tap_bias, self.ln, self.mlp):
            p = F.pad(h, (0, 0, 2, 0))
            h = h + sum(p[:, j : j + h.shape[1]] * taps[j] for j in range(3)) + b
            h = h + mlp(ln(h))
        return self.lm_head(h)


def load_weights(s, depth=3, n=8):
    o = {"embed_tokens.weight": s["embed.weight"], "lm_head.weight": s["head.weight"], "lm_head.bias": s["head.bias"]}
    for i in range(depth):
        o[f"taps.{i}"], o[f"tap_bias.{i}"] = s[f"conv.{i}.weight"][:, 0].t(), s[f"conv.{i}.bias"]
        o[f"ln.{i}.weight"], o[f"ln.{i}.bias"] = s[f"norm.{i}.weight"], s[f"norm.{i}.bias"]
        a, b = f"ffn.{i}.", f"mlp.{i}."
        o[b + "gate.weight"], o[b + "e_score_correction_bias"] = s[a + "gate.weight"], s[a + "gate.bias"]

        def w(e, k, a=a):
            return s[f"{a}experts.{e}.{k}.weight"]

        o[b + "experts.w13"] = torch.stack([torch.cat([w(e, "w1"), w(e, "w3")]) for e in range(n)])
        o[b + "experts.w2"] = torch.stack([w(e, "w2") for e in range(n)])
        o[b + "shared_gate_up.weight"] = torch.cat(
            [s[a + "shared_experts.w1.weight"], s[a + "shared_experts.w3.weight"]]
        )
        o[b + "shared_down.weight"] = s[a + "shared_experts.w2.weight"]
    return o


def build(fixed):
    torch.manual_seed(12002)
    original = VendorModel().eval()
    port = EngineModel(fixed).eval()
    port.load_state_dict(load_weights(original.state_dict()))
    return original, port, (torch.randint(0, 32, (2, 10)),)
