"""Faults planted in the ports of Llama and Mixtral: the reference is transformers' own model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Pair, fault, plant, ported

# Llama ---------------------------------------------------------------------------------------------


def in_pairs(self: Any, x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


# Any step of the rotation, which is written in another order than the reference's.
@fault("port-llama/rotary-in-pairs", "stages.1.look.inner", "getitem mul sub add stack cat flatten")
def _() -> Pair:
    a, b, inputs = ported("llama", "eager")
    plant(b.stages[1].look.inner, rotate=in_pairs)
    return Pair(a, b, inputs)


# The port computes its angles where they are used: the power, or what follows from it.
@fault("port-llama/rotary-base", "stages.0.look.inner", "pow rpow __rpow__ mul cos sin")
def _() -> Pair:
    a, b, inputs = ported("llama", "eager")
    b.stages[0].look.inner.theta = 500_000.0
    return Pair(a, b, inputs)


def turned_back(self: Any, x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)


@fault("port-llama/rotated-backwards", "stages.2.look.inner", "add sub cat mul")
def _() -> Pair:
    a, b, inputs = ported("llama", "eager")
    plant(b.stages[2].look.inner, rotate=turned_back)
    return Pair(a, b, inputs)


def tile(self: Any, x: Tensor) -> Tensor:
    return x.repeat(1, self.heads // self.groups, 1, 1)


@fault("port-llama/kv-heads-tiled", "stages.1.look.inner", "repeat repeat_interleave expand reshape")
def _() -> Pair:
    a, b, inputs = ported("llama", "eager")
    plant(b.stages[1].look.inner, share=tile)
    return Pair(a, b, inputs)


def up_first(self: Any, both: Tensor) -> Tensor:
    up, gate = both.chunk(2, dim=-1)
    return F.silu(gate) * up


# The halves are named the other way round: the split, or what is done to the wrong one.
@fault("port-llama/swapped-gate-and-up", "stages.2.think.inner", "chunk getitem silu mul")
def _() -> Pair:
    a, b, inputs = ported("llama")
    plant(b.stages[2].think.inner, gated=up_first)
    return Pair(a, b, inputs)


def by_another_size(self: Any, q: Tensor, k: Tensor) -> Tensor:
    return torch.einsum("bhqd,bhkd->bhqk", q, k) / (32 // self.heads) ** 0.5


@fault("port-llama/scale-of-another-head-size", "stages.0.look.inner", "div truediv mul")
def _() -> Pair:
    a, b, inputs = ported("llama", "eager")
    plant(b.stages[0].look.inner, scores=by_another_size)
    return Pair(a, b, inputs)


# One step of three is the epsilon's; the reference divides by multiplying with the root's inverse.
@fault("port-llama/norm-epsilon", "stages.1.think.norm", "add", "constant")
def _() -> Pair:
    a, b, inputs = ported("llama")
    b.stages[1].think.norm.eps = 1e-3
    return Pair(a, b, inputs)


def strictly_before(self: Any, tokens: int, mask: Tensor) -> Tensor:
    unseen = torch.ones(tokens, tokens, dtype=torch.bool).triu(0) | ~mask.bool()[:, None, None, :]
    return torch.zeros(unseen.shape).masked_fill(unseen, torch.finfo(torch.float32).min)


# The port makes its own mask: each step from the triangle on, and the sum that it goes into.
@fault("port-llama/mask-without-the-diagonal", "stages.0.look.inner", "triu or __or__ masked_fill add")
def _() -> Pair:
    a, b, inputs = ported("llama", "eager")
    plant(b.stages[0].look.inner, bias=strictly_before)
    return Pair(a, b, inputs)


def halved(self: Any, x: Tensor) -> Tensor:
    low = x.bfloat16()
    return (low / (low.square().mean(-1, keepdim=True) + self.eps).sqrt()).float() * self.g


@fault("port-llama/norm-in-bfloat16", "stages.2.look.norm", "bfloat16 to", "dtype extra values constant")
def _() -> Pair:
    a, b, inputs = ported("llama")
    plant(b.stages[2].look.norm, forward=halved)
    return Pair(a, b, inputs)


def without_adding(self: Any, x: Tensor, *others: Any) -> Tensor:
    return self.inner(self.norm(x), *others)


# The sum is missing: it, or in the port the call whose result is returned in its place.
@fault("port-llama/dropped-residual", "stages.1.look", "add GroupedAttention output", "missing wiring values")
def _() -> Pair:
    a, b, inputs = ported("llama")
    plant(b.stages[1].look, forward=without_adding)
    return Pair(a, b, inputs)


# Only one of the fused projection's rows differs: the call is the fused one.
@fault("port-llama/one-corrupted-element", "stages.1.look.inner.wqkv", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = ported("llama")
    with torch.no_grad():
        b.stages[1].look.inner.wqkv.weight[70, 3] += 8.0
    return Pair(a, b, inputs)


@fault("port-llama/scrambled-output-weight", "stages.0.look.inner.wo", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = ported("llama")
    output = b.stages[0].look.inner.wo
    output.weight = nn.Parameter(output.weight.detach().reshape(64, 32).T.contiguous())
    return Pair(a, b, inputs)


# Mixtral -------------------------------------------------------------------------------------------


def raw_weights(self: Any, logits: Tensor) -> Tensor:
    top, which = logits.softmax(-1).topk(self.best, dim=-1)
    return torch.zeros_like(logits).scatter(-1, which, top)


@fault("port-mixtral/weights-not-normalised", "stages.0.think.inner", "div truediv div_ scatter sum")
def _() -> Pair:
    a, b, inputs = ported("mixtral")
    plant(b.stages[0].think.inner, chosen=raw_weights)
    return Pair(a, b, inputs)


def weights_of_the_neighbour(self: Any, x: Tensor) -> Tensor:
    weights = self.chosen(self.router(x))
    return sum(expert(x) * weights[..., i - 1, None] for i, expert in enumerate(self.experts))


@fault("port-mixtral/wrong-expert", "stages.1.think.inner", "getitem mul add")
def _() -> Pair:
    a, b, inputs = ported("mixtral")
    plant(b.stages[1].think.inner, forward=weights_of_the_neighbour)
    return Pair(a, b, inputs)


@fault("port-mixtral/router-transposed", "stages.0.think.inner.router", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = ported("mixtral")
    router = b.stages[0].think.inner.router
    router.weight = nn.Parameter(router.weight.detach().flip(0))
    return Pair(a, b, inputs)


def gate_by_gelu(self: Any, both: Tensor) -> Tensor:
    gate, up = both.chunk(2, dim=-1)
    return F.gelu(gate) * up


# One expert of four: in the reference all experts are one call, so that the port's call or the body may be named.
@fault("port-mixtral/gelu-for-silu", "stages.1.think.inner.experts.2", "gelu silu mul")
def _() -> Pair:
    a, b, inputs = ported("mixtral")
    plant(b.stages[1].think.inner.experts[2], gated=gate_by_gelu)
    return Pair(a, b, inputs)
