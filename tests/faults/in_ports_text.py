"""Faults planted in the ports of BERT and GPT-2: the reference is transformers' own model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Pair, fault, plant, ported

# Where the reference's attention is one fused operation, its steps in the port have no counterpart each: any of those
# from the faulty one on is right. "matmul" before the faulty step is not among them.
AFTER_SCORES = "masked_fill where softmax matmul scaled_dot_product_attention"


# BERT ----------------------------------------------------------------------------------------------


def unscaled(self: Any, q: Tensor, k: Tensor) -> Tensor:
    return torch.matmul(q, k.transpose(-1, -2))


@fault("port-bert/missing-scale", "trunk.block_1.mixer", "mul div truediv matmul masked_fill", "missing values wiring")
def _() -> Pair:
    a, b, inputs = ported("bert", "eager")
    plant(b.trunk.block_1.mixer, scores=unscaled)
    return Pair(a, b, inputs)


@fault("port-bert/missing-scale-against-sdpa", "trunk.block_1.mixer", "mul div truediv " + AFTER_SCORES)
def _() -> Pair:
    a, b, inputs = ported("bert", "sdpa")
    plant(b.trunk.block_1.mixer, scores=unscaled)
    return Pair(a, b, inputs)


def keys_first(self: Any, x: Tensor) -> Any:
    stacked = self.qkv(x).reshape(*x.shape[:2], 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
    return stacked[1], stacked[0], stacked[2]


# The port takes its parts out in the wrong order: where it does, or the product of both that comes out transposed.
@fault("port-bert/swapped-query-and-key", "trunk.block_0.mixer", "getitem transpose matmul", "constant wiring values")
def _() -> Pair:
    a, b, inputs = ported("bert", "eager")
    plant(b.trunk.block_0.mixer, split=keys_first)
    return Pair(a, b, inputs)


def unmasked(self: Any, scores: Tensor, keep: Tensor) -> Tensor:
    return scores


@fault("port-bert/padding-ignored", "trunk.block_2.mixer", "add masked_fill softmax", "missing wiring values")
def _() -> Pair:
    a, b, inputs = ported("bert", "eager")
    plant(b.trunk.block_2.mixer, masked=unmasked)
    return Pair(a, b, inputs)


def merged_as_they_lie(self: Any, x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


@fault("port-bert/heads-merged-without-transpose", "trunk.block_0.mixer", "reshape transpose permute contiguous")
def _() -> Pair:
    a, b, inputs = ported("bert")
    plant(b.trunk.block_0.mixer, merge=merged_as_they_lie)
    return Pair(a, b, inputs)


@fault("port-bert/tanh-gelu", "trunk.block_2.network.1", "gelu", "constant")
def _() -> Pair:
    a, b, inputs = ported("bert")
    b.trunk.block_2.network[1] = nn.GELU("tanh")
    return Pair(a, b, inputs)


@fault("port-bert/zeroed-bias", "trunk.block_1.mixer.out", "linear get_attr", "weights")
def _() -> Pair:
    a, b, inputs = ported("bert")
    nn.init.zeros_(b.trunk.block_1.mixer.out.bias)
    return Pair(a, b, inputs)


def norm_before(self: Any, x: Tensor, keep: Tensor) -> Tensor:
    x = x + self.mixer(self.mixer_norm(x), keep)
    return x + self.network(self.network_norm(x))


# The body calls the norm first: itself, or the norm that is called too early.
@fault(
    "port-bert/pre-norm",
    "trunk.block_1 trunk.block_1.mixer_norm",
    "LayerNorm FusedAttention add layer_norm -",
    "wiring extra missing",
)
def _() -> Pair:
    a, b, inputs = ported("bert")
    plant(b.trunk.block_1, forward=norm_before)
    return Pair(a, b, inputs)


def without_segments(self: Any, ids: Tensor, segments: Tensor) -> Tensor:
    return self.norm(self.tokens(ids) + self.place(ids.shape[1]))


# The table is not looked up at all: the lookup, the sum that misses it, or the norm that gets another sum.
@fault("port-bert/segments-dropped", "words", "embedding Embedding add LayerNorm", "missing wiring values")
def _() -> Pair:
    a, b, inputs = ported("bert")
    plant(b.words, forward=without_segments)
    return Pair(a, b, inputs)


# By values the fused product's thirds changed places, by use the body takes them apart wrongly.
@fault("port-bert/weights-in-another-order", "trunk.block_1.mixer.qkv trunk.block_1.mixer", "linear get_attr getitem")
def _() -> Pair:
    a, b, inputs = ported("bert")
    qkv = b.trunk.block_1.mixer.qkv
    with torch.no_grad():
        for part in (qkv.weight, qkv.bias):
            part.copy_(part.roll(32, dims=0))
    return Pair(a, b, inputs)


def without_tanh(self: Any, x: Tensor) -> Tensor:
    return self.first(x[:, 0])


# The call is missing: the reference's own, or the body of the port, whose result is another.
@fault("port-bert/tanh-missing", ". pooler.activation", "tanh Tanh Linear output -", "missing wiring values")
def _() -> Pair:
    a, b, inputs = ported("bert")
    plant(b, pool=without_tanh)
    return Pair(a, b, inputs)


@fault("port-bert/norm-epsilon", "trunk.block_0.mixer_norm", "layer_norm", "constant")
def _() -> Pair:
    a, b, inputs = ported("bert")
    b.trunk.block_0.mixer_norm.eps = 1e-3
    return Pair(a, b, inputs)


# GPT-2 ---------------------------------------------------------------------------------------------


def padding_only(self: Any, tokens: int, keep: Tensor) -> Tensor:
    return keep[:, None, None, :]


@fault("port-gpt2/causal-mask-missing", "body.blocks.1.attention", "add where and __and__ getitem")
def _() -> Pair:
    a, b, inputs = ported("gpt2", "eager")
    plant(b.body.blocks[1].attention, allowed=padding_only)
    return Pair(a, b, inputs)


# The table of what is allowed, how it is used, or the choice made with it.
@fault("port-gpt2/mask-off-by-one", "body.blocks.1.attention", "get_attr getitem and __and__ where add")
def _() -> Pair:
    a, b, inputs = ported("gpt2", "eager")
    b.body.blocks[1].attention.past.copy_(torch.ones(40, 40, dtype=torch.bool).tril(1))
    return Pair(a, b, inputs)


def forbidden(self: Any, tokens: int, keep: Tensor) -> Tensor:
    return ~(self.past[:tokens, :tokens] & keep[:, None, None, :])


@fault("port-gpt2/inverted-mask", "body.blocks.2.attention", "invert bitwise_not where " + AFTER_SCORES)
def _() -> Pair:
    a, b, inputs = ported("gpt2", "sdpa")
    plant(b.body.blocks[2].attention, allowed=forbidden)
    return Pair(a, b, inputs)


def along_the_queries(self: Any, tokens: int, keep: Tensor) -> Tensor:
    return self.past[:tokens, :tokens] & keep[:, None, :, None]  # broadcasts as well


@fault("port-gpt2/mask-broadcast-along-queries", "body.blocks.0.attention", "getitem and __and__ where add")
def _() -> Pair:
    a, b, inputs = ported("gpt2", "eager")
    plant(b.body.blocks[0].attention, allowed=along_the_queries)
    return Pair(a, b, inputs)


def exact(self: Any, x: Tensor) -> Tensor:
    return self.down(F.gelu(self.up(x)))


# transformers writes the tanh form out in a module of its own.
@fault("port-gpt2/erf-gelu", "body.blocks.0", "gelu mul")
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    plant(b.body.blocks[0], feed=exact)
    return Pair(a, b, inputs)


# The reference's norm is one operation, so that its steps in the port have no counterpart each.
@fault("port-gpt2/norm-epsilon", "body.blocks.2", "add sqrt div truediv mul layer_norm")
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    b.body.blocks[2].eps = 1e-2
    return Pair(a, b, inputs)


def over_one_less(self: Any, x: Tensor, gain: Any) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(x.var(-1, keepdim=True) + self.eps) * gain.scale + gain.shift


@fault("port-gpt2/unbiased-variance", "body.blocks.1", "var add sqrt div truediv mul layer_norm")
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    plant(b.body.blocks[1], normed=over_one_less)
    return Pair(a, b, inputs)


def from_one(self: Any, ids: Tensor) -> Tensor:
    return torch.arange(1, ids.shape[1] + 1)


@fault("port-gpt2/position-off-by-one", "body", "arange Embedding", "constant values wiring")
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    plant(b.body, places=from_one)
    return Pair(a, b, inputs)


def residual_twice(self: Any, x: Tensor, keep: Tensor) -> Tensor:
    x = x + x + self.attention(self.normed(x, self.before), keep)
    return x + self.feed(self.normed(x, self.between))


@fault("port-gpt2/doubled-residual", "body.blocks.1", "add", "extra wiring values")
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    plant(b.body.blocks[1], forward=residual_twice)
    return Pair(a, b, inputs)


def without_last(self: Any, ids: Tensor, keep: Tensor) -> Tensor:
    return self.blocks[2](
        self.blocks[1](self.blocks[0](self.token(ids) + self.place(self.places(ids)), keep), keep), keep
    )


# The call is missing: the reference's own, or the body that does without, or the root: the norm stands between the last
# block and the head, which is the root's, and a port could have it on either side.
@fault(
    "port-gpt2/final-norm-missing",
    "body . transformer.ln_f",
    "layer_norm LayerNorm output PreNormBlock -",
    "missing wiring values",
)
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    plant(b.body, forward=without_last)
    return Pair(a, b, inputs)


def in_place(self: Any, x: Tensor, gain: Any) -> Tensor:
    x -= x.mean(-1, keepdim=True)  # x is the residual, too
    x /= torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)
    return x * gain.scale + gain.shift


# Who writes, or who reads what was overwritten.
@fault(
    "port-gpt2/residual-overwritten", "body.blocks.1", "sub_ isub div_ itruediv add", "overwritten wiring values extra"
)
def _() -> Pair:
    a, b, inputs = ported("gpt2")
    plant(b.body.blocks[1], normed=in_place)
    return Pair(a, b, inputs)


def through_half(self: Any, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1).bfloat16().float() @ v


@fault("port-gpt2/weights-through-bfloat16", "body.blocks.1.attention", "bfloat16 float to", "dtype extra values")
def _() -> Pair:
    a, b, inputs = ported("gpt2", "eager")
    plant(b.body.blocks[1].attention, attend=through_half)
    return Pair(a, b, inputs)
