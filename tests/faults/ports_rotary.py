"""Llama and Mixtral written again: fused projections, rotary positions by hand, one module per expert.

The steps of a body that faults replace are methods of their own: ``plant`` in ``case`` exchanges one on one module.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["TinyLlama", "TinyMixtral", "llama", "mixtral"]


class Root(nn.Module):
    """Root mean square norm, written out in another order than Llama's."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps, self.g = eps, nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.g


class GroupedAttention(nn.Module):
    """One projection for queries, keys and values; rotary angles are computed where they are used."""

    def __init__(self, width: int, heads: int, groups: int, size: int, theta: float) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.theta = heads, groups, size, theta
        self.wqkv = nn.Linear(width, (heads + 2 * groups) * size, bias=False)
        self.wo = nn.Linear(heads * size, width, bias=False)

    def angles(self, tokens: int) -> Tensor:
        rates = self.theta ** (-torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        return torch.arange(tokens, dtype=torch.float32)[:, None] * rates

    def rotate(self, x: Tensor, angles: Tensor) -> Tensor:
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def share(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.heads // self.groups, dim=1)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhqd,bhkd->bhqk", q, k) / self.size**0.5

    def bias(self, tokens: int, mask: Tensor) -> Tensor:
        unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) | ~mask.bool()[:, None, None, :]
        return torch.zeros(unseen.shape).masked_fill(unseen, torch.finfo(torch.float32).min)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        q, k, v = (part.view(batch, tokens, -1, self.size).transpose(1, 2) for part in self.wqkv(x).split(parts, -1))
        angles = self.angles(tokens)
        q, k = self.rotate(q, angles), self.share(self.rotate(k, angles))
        weights = F.softmax(self.scores(q, k) + self.bias(tokens, mask), dim=-1)
        mixed = torch.einsum("bhqk,bhkd->bqhd", weights, self.share(v))
        return self.wo(mixed.reshape(batch, tokens, -1))


class Swish(nn.Module):
    """Gate and up projection in one, the gate first."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w13, self.w2 = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def gated(self, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate) * up

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(self.gated(self.w13(x)))


class Experts(nn.Module):
    """The best experts of each token, weighed by the router; each expert is a module and sees all tokens."""

    def __init__(self, width: int, inner: int, count: int, best: int) -> None:
        super().__init__()
        self.best = best
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(Swish(width, inner) for _ in range(count))

    def chosen(self, logits: Tensor) -> Tensor:
        """The weight of every expert for every token: zero for all but the best."""
        top, which = logits.softmax(-1).topk(self.best, dim=-1)
        return torch.zeros_like(logits).scatter(-1, which, top / top.sum(-1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.chosen(self.router(x))
        return sum(expert(x) * weights[..., i, None] for i, expert in enumerate(self.experts))


class Wrapped(nn.Module):
    """A norm and what it stands before, with the residual around both."""

    def __init__(self, norm: nn.Module, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner = norm, inner

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        return x + self.inner(self.norm(x), *others)


class Stage(nn.Module):
    def __init__(self, attention: nn.Module, network: nn.Module, width: int, eps: float) -> None:
        super().__init__()
        self.look = Wrapped(Root(width, eps), attention)
        self.think = Wrapped(Root(width, eps), network)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.think(self.look(x, mask))


class TinyLlama(nn.Module):
    """``LlamaForCausalLM`` without cache; subclasses have another network in each stage."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        size = getattr(config, "head_dim", None) or width // heads
        theta = config.rope_parameters["rope_theta"]
        self.vocabulary = nn.Embedding(config.vocab_size, width)
        self.stages = nn.ModuleList(
            Stage(GroupedAttention(width, heads, groups, size, theta), self.network(config), width, eps)
            for _ in range(config.num_hidden_layers)
        )
        self.final = Root(width, eps)
        self.unembed = nn.Linear(width, config.vocab_size, bias=False)

    def network(self, config: Any) -> nn.Module:
        return Swish(config.hidden_size, config.intermediate_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.vocabulary(input_ids)
        for stage in self.stages:
            x = stage(x, attention_mask)
        return self.unembed(self.final(x))


class TinyMixtral(TinyLlama):
    """``MixtralForCausalLM`` without cache."""

    def network(self, config: Any) -> nn.Module:
        return Experts(
            config.hidden_size, config.intermediate_size, config.num_local_experts, config.num_experts_per_tok
        )


def llama(source: Any) -> TinyLlama:
    """The port of a ``LlamaForCausalLM``, with its weights."""
    model = TinyLlama(source.config)
    with torch.no_grad():
        _shared(model, source)
        for stage, layer in zip(model.stages, source.model.layers):
            stage.think.inner.w13.weight.copy_(torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]))
            stage.think.inner.w2.weight.copy_(layer.mlp.down_proj.weight)
    return model.eval()


def mixtral(source: Any) -> TinyMixtral:
    """The port of a ``MixtralForCausalLM``, with its weights."""
    model = TinyMixtral(source.config)
    with torch.no_grad():
        _shared(model, source)
        for stage, layer in zip(model.stages, source.model.layers):
            stage.think.inner.router.weight.copy_(layer.mlp.gate.weight)
            for i, expert in enumerate(stage.think.inner.experts):
                expert.w13.weight.copy_(layer.mlp.experts.gate_up_proj[i])
                expert.w2.weight.copy_(layer.mlp.experts.down_proj[i])
    return model.eval()


def _shared(model: TinyLlama, source: Any) -> None:
    model.vocabulary.weight.copy_(source.model.embed_tokens.weight)
    model.final.g.copy_(source.model.norm.weight)
    model.unembed.weight.copy_(source.lm_head.weight)
    for stage, layer in zip(model.stages, source.model.layers):
        own = layer.self_attn
        stage.look.inner.wqkv.weight.copy_(torch.cat([own.q_proj.weight, own.k_proj.weight, own.v_proj.weight]))
        stage.look.inner.wo.weight.copy_(own.o_proj.weight)
        stage.look.norm.g.copy_(layer.input_layernorm.weight)
        stage.think.norm.g.copy_(layer.post_attention_layernorm.weight)
