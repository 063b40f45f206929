"""sgl-project/sglang-jax#1282: a mixture-of-experts model re-implemented for another runtime.

The checkpoint has norm_topk_prob=False and a routed_scaling_factor above one. Dense layers agree,
MoE layers of the new runtime give smaller outputs than the reference.
"""

import torch
import torch.nn.functional as F
from torch import nn


class ExpertMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DeepseekMoE(nn.Module):
    def __init__(self, dim, n_experts=6, top_k=2, hidden=12, norm_topk_prob=False, routed_scaling_factor=2.5):
        super().__init__()
        self.top_k, self.norm_topk_prob, self.scale = top_k, norm_topk_prob, routed_scaling_factor
        self.gate = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList([ExpertMLP(dim, hidden) for _ in range(n_experts)])
        self.shared_experts = ExpertMLP(dim, 2 * hidden)

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        weight, index = self.gate(flat).softmax(-1).topk(self.top_k, dim=-1)
        if self.norm_topk_prob:
            weight = weight / weight.sum(-1, keepdim=True)
        weight = weight * self.scale
        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, slot = (index == e).nonzero(as_tuple=True)
            if rows.numel():
                y.index_add_(0, rows, weight[rows, slot, None] * expert(flat[rows]))
        return y.view_as(x) + self.shared_experts(x)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln1, self.ln2 = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)
        self.mix = nn.Linear(dim, dim, bias=False)
        self.mlp = DeepseekMoE(dim)

    def forward(self, x):
        past = torch.cumsum(self.mix(self.ln1(x)), 1) / torch.arange(1, x.size(1) + 1)[:, None]
        x = x + past
        return x + self.mlp(self.ln2(x))


class ReferenceLM(nn.Module):
    def __init__(self, vocab=32, dim=16, depth=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.norm = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class TopK(nn.Module):
    def __init__(self, topk, renormalize, routed_scaling_factor):
        super().__init__()
        self.topk, self.renormalize, self.routed_scaling_factor = topk, renormalize, routed_scaling_factor

    def pick(self, probs):
        ids = probs.argsort(-1, descending=True)[..., : self.topk]
        return probs.gather(-1, ids), ids

    def forward(self, router_logits):
        probs = router_logits.exp() / router_logits.exp().sum(-1, keepdim=True)
        topk_weights, topk_ids = self.pick(probs)
        if self.renormalize:
            topk_weights = topk_weights / topk_weights.sum(-1, keepdim=True)
            if self.routed_scaling_factor is not None:
                topk_weights = topk_weights * self.routed_scaling_factor
        return topk_weights, topk_ids


class TopKScaled(TopK):
    def forward(self, router_logits):
        topk_weights, topk_ids = self.pick(router_logits.softmax(-1))
        if self.renormalize:
            topk_weights = topk_weights / topk_weights.sum(-1, keepdim=True)
        if self.routed_scaling_factor is not None:
            topk_weights = topk_weights * self.routed_scaling_factor
        return topk_weights, topk_ids


class EPMoE(nn.Module):
    """Expert weights are stacked; every token visits all experts and keeps the chosen ones."""

    def __init__(self, d, n_exp, inter, topk_cls):
        super().__init__()
        self.router = nn.Parameter(torch.empty(d, n_exp))
        self.wi = nn.Parameter(torch.empty(n_exp, d, 2 * inter))
        self.wo = nn.Parameter(torch.empty(n_exp, inter, d))
        self.shared_wi = nn.Parameter(torch.empty(d, 4 * inter))
        self.shared_wo = nn.Parameter(torch.empty(2 * inter, d))
        self.topk = topk_cls(2, False, 2.5)

    @staticmethod
    def swiglu(h):
        a, b = h.chunk(2, -1)
        return F.silu(a) * b

    def forward(self, x):
        w, ids = self.topk(x @ self.router)
        combine = torch.zeros(*x.shape[:-1], self.wi.size(0)).scatter(-1, ids, w)
        h = self.swiglu(torch.einsum("btd,edf->btef", x, self.wi))
        routed = torch.einsum("btef,efd,bte->btd", h, self.wo, combine)
        return routed + self.swiglu(x @ self.shared_wi) @ self.shared_wo


class RuntimeLM(nn.Module):
    def __init__(self, vocab=32, d=16, depth=2, topk_cls=TopK):
        super().__init__()
        self.depth = depth
        self.embedding = nn.Embedding(vocab, d)
        self.scales = nn.Parameter(torch.empty(2 * depth + 1, d))
        self.token_mix = nn.Parameter(torch.empty(depth, d, d))
        self.moe = nn.ModuleList([EPMoE(d, 6, 12, topk_cls) for _ in range(depth)])

    def forward(self, ids):
        x = self.embedding(ids)
        T = ids.size(1)
        avg = torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None]

        def rms(v, i):
            return F.rms_norm(v, v.shape[-1:], self.scales[i], 1e-6)

        for i in range(self.depth):
            x = x + avg @ (rms(x, 2 * i) @ self.token_mix[i])
            x = x + self.moe[i](rms(x, 2 * i + 1))
        return rms(x, 2 * self.depth)


def convert(sd):
    depth = sum(k.endswith("ln1.weight") for k in sd)
    out = {"embedding.weight": sd["embed_tokens.weight"]}
    scales = [sd[f"layers.{i}.{n}.weight"] for i in range(depth) for n in ("ln1", "ln2")]
    out["scales"] = torch.stack(scales + [sd["norm.weight"]])
    out["token_mix"] = torch.stack([sd[f"layers.{i}.mix.weight"].t() for i in range(depth)])
    for i in range(depth):
        s, d = f"layers.{i}.mlp.", f"moe.{i}."
        n = sd[s + "gate.weight"].size(0)

        def both(p):
            return torch.cat([sd[p + "gate_proj.weight"], sd[p + "up_proj.weight"]]).t()

        out[d + "router"] = sd[s + "gate.weight"].t()
        out[d + "wi"] = torch.stack([both(f"{s}experts.{e}.") for e in range(n)])
        out[d + "wo"] = torch.stack([sd[f"{s}experts.{e}.down_proj.weight"].t() for e in range(n)])
        out[d + "shared_wi"] = both(s + "shared_experts.")
        out[d + "shared_wo"] = sd[s + "shared_experts.down_proj.weight"].t()
    return out


def build(fixed):
    torch.manual_seed(8)
    original = ReferenceLM().eval()
    with torch.no_grad():
        for n, p in original.named_parameters():
            if "experts" in n:
                p.mul_(2.0)
            elif "ln" in n:
                p.add_(0.2 * torch.randn_like(p))
    port = RuntimeLM(topk_cls=TopKScaled if fixed else TopK).eval()
    port.load_state_dict(convert(original.state_dict()))
    return original, port, (torch.randint(0, 32, (2, 7)),)
