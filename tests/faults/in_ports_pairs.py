"""Faults planted in the ports of T5, ViT and Whisper: the reference is transformers' own model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .case import Pair, fault, plant, ported

# T5 ------------------------------------------------------------------------------------------------


def from_query_to_key(self: Any, tokens: int) -> Tensor:
    places = torch.arange(tokens)
    return self.table[self.bucket(places[:, None] - places)].permute(2, 0, 1)


@fault("port-t5/relative-position-backwards", "reader.distances", "sub getitem")
def _() -> Pair:
    a, b, inputs = ported("t5")
    plant(b.reader.distances, forward=from_query_to_key)
    return Pair(a, b, inputs)


# The logarithm's share is scaled by another number: the division, or the bucket it leads to.
@fault("port-t5/relative-position-buckets", "reader.distances", "div truediv")
def _() -> Pair:
    a, b, inputs = ported("t5")
    b.reader.distances.furthest = 128
    return Pair(a, b, inputs)


@fault("port-t5/scores-scaled", "writer.steps.4", "mul matmul", "constant values extra")
def _() -> Pair:
    a, b, inputs = ported("t5", "eager")
    b.writer.steps[4].scale = 8**-0.5
    return Pair(a, b, inputs)


# The port's norms are calls of a function in the tower's body, with one epsilon for all of them.
@fault("port-t5/norm-epsilon", "reader", "rms_norm", "constant values")
def _() -> Pair:
    a, b, inputs = ported("t5")
    b.reader.eps = 1e-2
    return Pair(a, b, inputs)


@fault("port-t5/head-without-its-scale", ".", "mul Linear", "constant wiring values extra")
def _() -> Pair:
    a, b, inputs = ported("t5")
    b.scale = 1.0  # the configuration asks for the root of the width
    return Pair(a, b, inputs)


def values_first(self: Any, x: Tensor, source: Tensor, added: Any = None) -> Tensor:
    values, keys = self.hold(source).chunk(2, dim=-1)
    weights = self.weights(self.heads_of(self.ask(x)), self.heads_of(keys), added)
    return self.give(torch.matmul(weights, self.heads_of(values)).movedim(1, -2).flatten(-2))


# Which half is which: the split, or the product with the wrong one.
@fault("port-t5/swapped-keys-and-values", "writer.steps.1", "chunk getitem unflatten movedim matmul transpose mT")
def _() -> Pair:
    a, b, inputs = ported("t5", "eager")
    plant(b.writer.steps[1], forward=values_first)
    return Pair(a, b, inputs)


@fault("port-t5/norm-weights-of-the-neighbour", "reader", "rms_norm get_attr", "weights values wiring")
def _() -> Pair:
    a, b, inputs = ported("t5")
    with torch.no_grad():
        b.reader.gains[1].copy_(b.reader.gains[2])
    return Pair(a, b, inputs)


def ones_are_hidden(self: Any, mask: Tensor) -> Tensor:
    return mask[:, None, None, :].float() * torch.finfo(torch.float32).min


# The tower makes the mask: its steps, and what is made of them before attention gets it.
@fault("port-t5/inverted-mask", "reader", "mul rsub sub add float")
def _() -> Pair:
    a, b, inputs = ported("t5", "eager")
    plant(b.reader, added=ones_are_hidden)
    return Pair(a, b, inputs)


# ViT -----------------------------------------------------------------------------------------------


def columns_first(self: Any, image: Tensor) -> Tensor:
    size = self.size
    return image.unfold(2, size, size).unfold(3, size, size).permute(0, 3, 2, 1, 4, 5).flatten(3).flatten(1, 2)


# The port cuts before it projects: what comes out of the projection is the first to have a counterpart.
@fault("port-vit/patches-column-by-column", "patches", "permute flatten unfold Linear")
def _() -> Pair:
    a, b, inputs = ported("vit")
    plant(b.patches, cut=columns_first)
    return Pair(a, b, inputs)


def channels_last(self: Any, image: Tensor) -> Tensor:
    size = self.size
    return image.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)


@fault("port-vit/channels-last-within-patches", "patches", "permute flatten unfold Linear")
def _() -> Pair:
    a, b, inputs = ported("vit")
    plant(b.patches, cut=channels_last)
    return Pair(a, b, inputs)


def started_at_the_end(self: Any, x: Tensor) -> Tensor:
    return torch.cat([x, self.start.expand(len(x), 1, -1)], dim=1)


@fault("port-vit/class-token-last", "patches", "cat", "wiring values constant")
def _() -> Pair:
    a, b, inputs = ported("vit")
    plant(b.patches, started=started_at_the_end)
    return Pair(a, b, inputs)


@fault("port-vit/transposed-square-weight", "steps.1.look.join", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = ported("vit")
    join = b.steps[1].look.join
    join.weight = nn.Parameter(join.weight.detach().T.contiguous())
    return Pair(a, b, inputs)


@fault("port-vit/one-corrupted-element", "steps.2.a", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = ported("vit")
    with torch.no_grad():
        b.steps[2].a.weight[11, 7] -= 6.0
    return Pair(a, b, inputs)


def over_the_queries(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5, dim=-2)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


@fault("port-vit/softmax-over-queries", "steps.1.look", "softmax", "constant values")
def _() -> Pair:
    a, b, inputs = ported("vit", "eager")
    plant(b.steps[1].look, attention=over_the_queries)
    return Pair(a, b, inputs)


def mean_of_all(self: Any, x: Tensor) -> Tensor:
    return x.mean(1)


@fault("port-vit/pooled-by-mean", ".", "mean getitem", "values wiring extra")
def _() -> Pair:
    a, b, inputs = ported("vit")
    plant(b, first=mean_of_all)
    return Pair(a, b, inputs)


def queries_first(self: Any, x: Tensor) -> Tensor:
    q, k, v = self.kqv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
    return self.join(self.attention(q, k, v).flatten(2))


# The parts are taken out in the wrong order: where it is done, or the product of both.
@fault("port-vit/swapped-query-and-key", "steps.0.look", "unbind getitem einsum matmul transpose")
def _() -> Pair:
    a, b, inputs = ported("vit", "eager")
    plant(b.steps[0].look, forward=queries_first)
    return Pair(a, b, inputs)


# Whisper -------------------------------------------------------------------------------------------


def padded_on_one_side(self: Any, sound: Tensor) -> Tensor:
    first, first_bias, second, second_bias = self.kernels
    x = F.gelu(F.conv1d(F.pad(sound, (2, 0)), first, first_bias))
    return F.gelu(F.conv1d(x, second, second_bias, stride=2, padding=1)).transpose(1, 2)


@fault("port-whisper/padded-on-one-side", "ear", "pad conv1d", "extra constant values wiring")
def _() -> Pair:
    a, b, inputs = ported("whisper")
    plant(b.ear, heard=padded_on_one_side)
    return Pair(a, b, inputs)


def strided_first(self: Any, sound: Tensor) -> Tensor:
    first, first_bias, second, second_bias = self.kernels
    x = F.gelu(F.conv1d(sound, first, first_bias, stride=2, padding=1))
    return F.gelu(F.conv1d(x, second, second_bias, padding=1)).transpose(1, 2)


@fault("port-whisper/stride-in-the-first-convolution", "ear", "conv1d", "constant shape")
def _() -> Pair:
    a, b, inputs = ported("whisper")
    plant(b.ear, heard=strided_first)
    return Pair(a, b, inputs)


def from_place_one(self: Any, tokens: int) -> Tensor:
    return self.place[1 : tokens + 1]


@fault("port-whisper/position-off-by-one", "mouth", "getitem add", "constant values wiring")
def _() -> Pair:
    a, b, inputs = ported("whisper")
    plant(b.mouth, places=from_place_one)
    return Pair(a, b, inputs)


def last_first(self: Any, sound: Tensor) -> Tensor:
    x = self.heard(sound) + self.times
    for unit in reversed(self.units):
        x = unit(x)
    return self.ln(x)


# The body hands the second unit what the first should get: it, or one of the two as extra here and missing there.
@fault(
    "port-whisper/layers-in-another-order",
    "ear ear.units.0 ear.units.1",
    "Unit -",
    "wiring extra missing",
)
def _() -> Pair:
    a, b, inputs = ported("whisper")
    plant(b.ear, forward=last_first)
    return Pair(a, b, inputs)


@fault("port-whisper/zeroed-bias", "ear.units.0.own.hold", "linear get_attr", "weights values")
def _() -> Pair:
    a, b, inputs = ported("whisper")
    nn.init.zeros_(b.ear.units[0].own.hold.bias)
    return Pair(a, b, inputs)


def nothing_hidden(self: Any, x: Tensor, memory: Tensor) -> Tensor:
    normed = self.own_ln(x)
    x = x + self.own(normed, normed)
    x = x + self.other(self.other_ln(x), memory)
    return x + self.network(x)


# The body does not hand the mask over, so that the sum is missing in the attention's own body.
@fault(
    "port-whisper/causal-mask-missing",
    "mouth.units.1 mouth.units.1.own",
    "Attend add softmax full triu",
    "wiring missing values input",
)
def _() -> Pair:
    a, b, inputs = ported("whisper", "eager")
    plant(b.mouth.units[1], forward=nothing_hidden)
    return Pair(a, b, inputs)


def skips_the_residual(self: Any, x: Tensor, memory: Any = None) -> Tensor:
    normed = self.own_ln(x)
    x = normed + self.own(normed, normed)
    return x + self.network(x)


@fault("port-whisper/residual-taken-after-the-norm", "ear.units.1", "add", "wiring values")
def _() -> Pair:
    a, b, inputs = ported("whisper")
    plant(b.ear.units[1], forward=skips_the_residual)
    return Pair(a, b, inputs)


def tanh_network(self: Any, x: Tensor) -> Tensor:
    return self.net["narrow"](F.gelu(self.net["wide"](self.net["ln"](x)), approximate="tanh"))


@fault("port-whisper/tanh-gelu", "mouth.units.0", "gelu", "constant")
def _() -> Pair:
    a, b, inputs = ported("whisper")
    plant(b.mouth.units[0], network=tanh_network)
    return Pair(a, b, inputs)
