"""lablup/mlxcel#391: the OLMoE router soft-maxes only the chosen logits, although norm_topk_prob is false.

The reference loops over experts and keeps separate gate / up / down projections; the port stacks all experts in three
tensors, gathers the chosen ones, and uses a fused qkv projection with scaled_dot_product_attention.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class OlmoeConfig:
    vocab: int = 40
    dim: int = 24
    heads: int = 4
    layers: int = 2
    experts: int = 4
    top_k: int = 2
    ffn: int = 20
    norm_topk_prob: bool = False


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


class OlmoeExpert(nn.Module):
    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Parameter(torch.randn(cfg.ffn, cfg.dim) * cfg.dim**-0.5)
        self.up_proj = nn.Parameter(torch.randn(cfg.ffn, cfg.dim) * cfg.dim**-0.5)
        self.down_proj = nn.Parameter(torch.randn(cfg.dim, cfg.ffn) * cfg.ffn**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, self.gate_proj)) * F.linear(x, self.up_proj), self.down_proj)


class OlmoeSparseMoe(nn.Module):
    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.gate = nn.Linear(cfg.dim, cfg.experts, bias=False)
        self.experts = nn.ModuleList(OlmoeExpert(cfg) for _ in range(cfg.experts))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        probs = self.gate(flat).softmax(-1)
        weights, chosen = probs.topk(self.cfg.top_k, dim=-1)
        if self.cfg.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == index)
            if rows.numel():
                out.index_add_(0, rows, expert(flat[rows]) * weights[rows, slots].unsqueeze(-1))
        return out.view_as(x)


class OlmoeAttention(nn.Module):
    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.heads = cfg.heads
        self.q_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.k_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.v_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.o_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.q_norm = RMSNorm(cfg.dim)
        self.k_norm = RMSNorm(cfg.dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        shape = (b, t, self.heads, d // self.heads)
        q = self.q_norm(self.q_proj(x)).view(shape).transpose(1, 2)
        k = self.k_norm(self.k_proj(x)).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        probs = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.o_proj((probs @ v).transpose(1, 2).reshape(b, t, d))


class OlmoeLayer(nn.Module):
    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(cfg.dim)
        self.self_attn = OlmoeAttention(cfg)
        self.post_attention_layernorm = RMSNorm(cfg.dim)
        self.mlp = OlmoeSparseMoe(cfg)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class OlmoeModel(nn.Module):
    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg.vocab, cfg.dim)
        self.layers = nn.ModuleList(OlmoeLayer(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.dim)
        self.lm_head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class SwitchExperts(nn.Module):
    """All experts at once: gate/up of shape (E, F, D), down of shape (E, D, F)."""

    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.w_gate = nn.Parameter(torch.empty(cfg.experts, cfg.ffn, cfg.dim))
        self.w_up = nn.Parameter(torch.empty(cfg.experts, cfg.ffn, cfg.dim))
        self.w_down = nn.Parameter(torch.empty(cfg.experts, cfg.dim, cfg.ffn))

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        gate = torch.einsum("btd,btkfd->btkf", x, self.w_gate[indices])
        up = torch.einsum("btd,btkfd->btkf", x, self.w_up[indices])
        return torch.einsum("btkf,btkdf->btkd", F.silu(gate) * up, self.w_down[indices])


class SparseBlock(nn.Module):
    def __init__(self, cfg: OlmoeConfig, softmax_over_all: bool) -> None:
        super().__init__()
        self.router = nn.Linear(cfg.dim, cfg.experts, bias=False)
        self.switch = SwitchExperts(cfg)
        self.k = cfg.top_k
        self.renormalise = cfg.norm_topk_prob
        self.softmax_over_all = softmax_over_all

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        indices = logits.argsort(dim=-1, descending=True)[..., : self.k]
        if self.softmax_over_all:
            scores = logits.softmax(-1).gather(-1, indices)
            if self.renormalise:
                scores = scores / scores.sum(-1, keepdim=True)
        else:
            scores = logits.gather(-1, indices).softmax(-1)
        return (self.switch(x, indices) * scores.unsqueeze(-1)).sum(-2)


class PackedAttention(nn.Module):
    def __init__(self, cfg: OlmoeConfig) -> None:
        super().__init__()
        self.n_head = cfg.heads
        self.wqkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.wo = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.norm_q = nn.RMSNorm(cfg.dim, eps=1e-5)
        self.norm_k = nn.RMSNorm(cfg.dim, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.wqkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for t in (self.norm_q(q), self.norm_k(k), v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).flatten(2))


class PackedLayer(nn.Module):
    def __init__(self, cfg: OlmoeConfig, softmax_over_all: bool) -> None:
        super().__init__()
        self.ln1 = nn.RMSNorm(cfg.dim, eps=1e-5)
        self.attn = PackedAttention(cfg)
        self.ln2 = nn.RMSNorm(cfg.dim, eps=1e-5)
        self.moe = SparseBlock(cfg, softmax_over_all)

    def forward(self, x: Tensor) -> Tensor:
        h = x + self.attn(self.ln1(x))
        return h + self.moe(self.ln2(h))


class PackedOlmoe(nn.Module):
    def __init__(self, cfg: OlmoeConfig, softmax_over_all: bool) -> None:
        super().__init__()
        self.wte = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(PackedLayer(cfg, softmax_over_all) for _ in range(cfg.layers))
        self.ln_f = nn.RMSNorm(cfg.dim, eps=1e-5)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.wte(ids)
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln_f(h))


@torch.no_grad()
def convert(source: OlmoeModel, target: PackedOlmoe) -> None:
    target.wte.weight.copy_(source.embed_tokens.weight)
    target.ln_f.weight.copy_(source.norm.weight)
    target.head.weight.copy_(source.lm_head.weight)
    for src, dst in zip(source.layers, target.blocks, strict=True):
        att = src.self_attn
        dst.ln1.weight.copy_(src.input_layernorm.weight)
        dst.ln2.weight.copy_(src.post_attention_layernorm.weight)
        dst.attn.wqkv.weight.copy_(torch.cat([att.q_proj.weight, att.k_proj.weight, att.v_proj.weight]))
        dst.attn.wo.weight.copy_(att.o_proj.weight)
        dst.attn.norm_q.weight.copy_(att.q_norm.weight)
        dst.attn.norm_k.weight.copy_(att.k_norm.weight)
        dst.moe.router.weight.copy_(src.mlp.gate.weight)
        dst.moe.switch.w_gate.copy_(torch.stack([e.gate_proj for e in src.mlp.experts]))
        dst.moe.switch.w_up.copy_(torch.stack([e.up_proj for e in src.mlp.experts]))
        dst.moe.switch.w_down.copy_(torch.stack([e.down_proj for e in src.mlp.experts]))


def build(fixed: bool = False) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(102)
    cfg = OlmoeConfig()
    original = OlmoeModel(cfg).eval()
    with torch.no_grad():
        for name, param in original.named_parameters():
            if "norm" in name:
                param.uniform_(0.7, 1.3)
    port = PackedOlmoe(cfg, softmax_over_all=fixed).eval()
    convert(original, port)
    return original, port, (torch.randint(0, cfg.vocab, (2, 9)),)


if __name__ == "__main__":
    reference, ported, inputs = build()
    print((reference(*inputs) - ported(*inputs)).abs().max().item())
