"""Faults planted in the ports of Gemma 2, GPT-NeoX and BLOOM: the reference is transformers' own model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Pair, fault, plant
from .equal_families import rewritten

# Gemma 2 -------------------------------------------------------------------------------------------


@fault("port-gemma2/softcap", "body.1", "truediv div rdiv mul __rmul__", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    b.body[1].cap = 5.0
    return Pair(a, b, inputs)


@fault("port-gemma2/no-softcap", "body.0", "truediv div tanh mul __rmul__", "missing values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b.body[0], capped=lambda self, scores: scores)
    return Pair(a, b, inputs)


@fault("port-gemma2/scale-of-the-head", "body.1", "mul", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    b.body[1].scale = 8**-0.5
    return Pair(a, b, inputs)


# Heads in another order: where they are repeated, or the first product with them.
@fault("port-gemma2/key-heads-repeated-in-turn", "body.0", "repeat einsum")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b.body[0], repeated=lambda self, x: x.repeat(1, 1, 2, 1))
    return Pair(a, b, inputs)


@fault("port-gemma2/embeddings-not-scaled", ".", "getitem mul", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b, looked_up=lambda self, ids: self.table[ids])
    return Pair(a, b, inputs)


@fault("port-gemma2/embeddings-scaled-by-the-width", ".", "mul", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b, looked_up=lambda self, ids: self.table[ids] * self.table.shape[1])
    return Pair(a, b, inputs)


@fault("port-gemma2/norm-without-one", "body.1", "add __radd__ rms_norm", "missing values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plain = lambda self, x, which: F.rms_norm(x, x.shape[-1:], self.norms[which], self.eps)  # noqa: E731
    plant(b.body[1], norm=plain)
    return Pair(a, b, inputs)


@fault("port-gemma2/norm-epsilon", "body.0", "rms_norm", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    b.body[0].eps = 1e-2
    return Pair(a, b, inputs)


def without_post_norm(self: Any, x: Tensor, keep: Tensor) -> Tensor:
    x = x + self.attend(self.norm(x, 0), keep)
    return x + self.norm(self.network(self.norm(x, 2)), 3)


@fault("port-gemma2/post-norm-left-out", "body.1", "rms_norm add Gemma2RMSNorm", "missing wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b.body[1], forward=without_post_norm)
    return Pair(a, b, inputs)


def up_first(self: Any, x: Tensor) -> Tensor:
    up, gate = F.linear(x, self.gate_up).chunk(2, dim=-1)
    return self.down(F.gelu(gate, approximate="tanh") * up)


@fault("port-gemma2/gate-and-up-swapped", "body.0", "chunk getitem gelu linear", "wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b.body[0], network=up_first)
    return Pair(a, b, inputs)


def erf(self: Any, x: Tensor) -> Tensor:
    gate, up = F.linear(x, self.gate_up).chunk(2, dim=-1)
    return self.down(F.gelu(gate) * up)


@fault("port-gemma2/erf-gelu", "body.1", "gelu", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b.body[1], network=erf)
    return Pair(a, b, inputs)


# The window is cut into the mask: any step of making it, or the operation it goes into.
@fault("port-gemma2/window-too-wide", "body.0", "lt le gt ge and __and__ and_ masked_fill invert softmax")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    b.body[0].window = 5
    return Pair(a, b, inputs)


@fault("port-gemma2/no-final-softcap", ".", "truediv div tanh mul __rmul__ matmul", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    plant(b, head=lambda self, x: x @ self.table.T)
    return Pair(a, b, inputs)


@fault("port-gemma2/softmax-over-queries", "body.0", "softmax", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")

    def attend(self: Any, x: Tensor, keep: Tensor) -> Tensor:
        from .ports_families import _angles, _turned

        cos, sin = _angles(x.shape[1], self.size)
        q = torch.einsum("btw,hsw->bths", x, self.wq)
        k, v = torch.einsum("btw,cgsw->cbtgs", x, self.wkv)
        q, k = _turned(q, cos, sin), self.repeated(_turned(k, cos, sin))
        scores = self.capped(torch.einsum("bqhs,bkhs->bhqk", q, k) * self.scale)
        scores = scores.masked_fill(self.hidden(keep)[:, None], -1e30)
        mixed = torch.einsum("bhqk,bkhs->bqhs", scores.softmax(-2), self.repeated(v))
        return torch.einsum("bqhs,hsw->bqw", mixed, self.wo)

    plant(b.body[0], attend=attend)
    return Pair(a, b, inputs)


@fault("port-gemma2/one-value-weight", "body.1", "einsum", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("gemma2")
    b.body[1].wkv.data[1, 0, 3, 7] += 0.7
    return Pair(a, b, inputs)


# GPT-NeoX ------------------------------------------------------------------------------------------


def one_after_the_other(self: Any, x: Tensor, bias: Tensor) -> Tensor:
    x = x + self.attend(self.ln_a(x), bias)
    return x + self.network(self.ln_m(x))


@fault("port-neox/one-residual-after-the-other", "stack.0 stack.0.ln_m", "LayerNorm add layer_norm", "wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    plant(b.stack[0], forward=one_after_the_other)
    return Pair(a, b, inputs)


def turn_all(self: Any, x: Tensor) -> Tensor:
    from .ports_families import _angles, _turned

    return _turned(x, *_angles(x.shape[1], self.size))


# All of the head turns: where it is not cut, the angles, or what is made of them.
@fault("port-neox/rotary-over-the-whole-head", "stack.1", "getitem chunk mul sub add cat arange outer cos sin")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    plant(b.stack[1], turn=turn_all)
    return Pair(a, b, inputs)


def turn_backwards(self: Any, x: Tensor) -> Tensor:
    from .ports_families import _angles, _turned

    cos, sin = _angles(x.shape[1], self.size // 2)
    return torch.cat([_turned(x[..., : self.size // 2], cos, -sin), x[..., self.size // 2 :]], dim=-1)


@fault("port-neox/rotated-the-other-way", "stack.0", "neg sub add mul cat", "extra values")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    plant(b.stack[0], turn=turn_backwards)
    return Pair(a, b, inputs)


def turn_later(self: Any, x: Tensor) -> Tensor:
    from .ports_families import _angles, _turned

    cos, sin = _angles(x.shape[1] + 1, self.size // 2)
    part = self.size // 2
    return torch.cat([_turned(x[..., :part], cos[1:], sin[1:]), x[..., part:]], dim=-1)


def attend_keys_later(self: Any, x: Tensor, bias: Tensor) -> Tensor:
    q, k, v = (each(x).unflatten(-1, (self.heads, self.size)) for each in (self.q, self.k, self.v))
    q, k, v = (each.transpose(1, 2) for each in (self.turn(q), turn_later(self, k), v))
    return self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2))


@fault(
    "port-neox/keys-one-place-late",
    "stack.1",
    "getitem add mul cos sin sub cat arange outer",
    "values extra wiring constant",
)
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    plant(b.stack[1], attend=attend_keys_later)
    return Pair(a, b, inputs)


@fault("port-neox/heads-of-keys-swapped", "stack.0.k", "linear", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    for part in (b.stack[0].k.weight, b.stack[0].k.bias):
        part.data = torch.cat([part.data[8:16], part.data[:8], part.data[16:]])
    return Pair(a, b, inputs)


@fault("port-neox/query-bias-zeroed", "stack.1.q", "linear", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    nn.init.zeros_(b.stack[1].q.bias)
    return Pair(a, b, inputs)


# The last step of making the mask, or what it lacks.
@fault("port-neox/padding-seen", ".", "triu add mul rsub sub", "missing values")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)  # padded in front, where it is seen
    plant(b, bias=lambda self, keep: torch.full((keep.shape[1],) * 2, float("-inf")).triu(1))
    return Pair(a, b, inputs)


# By its weights the one norm is the other, by its place the block hands what it returns to the wrong one.
@fault("port-neox/norms-swapped", "stack.1.ln_a stack.1", "layer_norm Linear", "weights values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("neox")
    one = b.stack[1]
    one.ln_a, one.ln_m = one.ln_m, one.ln_a
    return Pair(a, b, inputs)


# BLOOM ---------------------------------------------------------------------------------------------


@fault("port-bloom/slopes", "levels.1", "pow rpow __rpow__ mul truediv div", "constant values extra")
def _() -> Pair:
    a, b, inputs = rewritten("bloom")
    plant(b.levels[1], slopes=lambda self: 0.5 ** torch.arange(1, self.heads + 1))
    return Pair(a, b, inputs)


@fault("port-bloom/distance-without-sign", "levels.0", "abs mul sub", "extra values")
def _() -> Pair:
    a, b, inputs = rewritten("bloom")

    def bias(self: Any, keep: Tensor) -> Tensor:
        places = torch.arange(keep.shape[1])
        far = places[None] - places[:, None]
        seen = (far <= 0) & keep[:, None, None].bool()
        return torch.where(seen, self.slopes()[:, None, None] * far.abs(), torch.tensor(-1e9))

    plant(b.levels[0], bias=bias)
    return Pair(a, b, inputs)


@fault("port-bloom/all-queries-first", "levels.0", "view unbind einsum", "wiring values constant")
def _() -> Pair:
    a, b, inputs = rewritten("bloom")
    apart = lambda self, x: self.mix["into"](x).view(*x.shape[:2], 3, self.heads, -1).unbind(2)  # noqa: E731
    plant(b.levels[0], taken_apart=apart)
    return Pair(a, b, inputs)


@fault("port-bloom/scale-twice", "levels.1", "truediv div einsum", "extra values constant")
def _() -> Pair:
    a, b, inputs = rewritten("bloom")

    def attend(self: Any, x: Tensor, keep: Tensor) -> Tensor:
        q, k, v = self.taken_apart(x)
        root = q.shape[-1] ** 0.5
        scores = torch.einsum("bqhs,bkhs->bhqk", q / root, k / root) + self.bias(keep)
        return self.mix["out"](torch.einsum("bhqk,bkhs->bqhs", self.weights(scores), v).reshape(x.shape))

    plant(b.levels[1], attend=attend)
    return Pair(a, b, inputs)


@fault("port-bloom/erf-gelu", "levels.0", "gelu", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("bloom")
    plant(b.levels[0], act=lambda self, x: F.gelu(x))
    return Pair(a, b, inputs)


@fault("port-bloom/residual-of-the-norm", "levels.1", "add", "wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("bloom")

    def forward(self: Any, x: Tensor, keep: Tensor) -> Tensor:
        normed = self.pre(x)
        x = normed + self.attend(normed, keep)
        return x + self.narrow(self.act(self.wide(self.mid(x))))

    plant(b.levels[1], forward=forward)
    return Pair(a, b, inputs)


@fault(
    "port-bloom/norm-behind-the-embeddings-missing", ". lookup lookup.1", "LayerNorm layer_norm Identity Sequential -"
)
def _() -> Pair:
    a, b, inputs = rewritten("bloom")
    b.lookup.forward = lambda ids: b.lookup[0](ids)
    return Pair(a, b, inputs)
