"""Faults planted in the ports of ConvNeXt, ResNet, a U-Net, a tagger and an encoder."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .case import Pair, fault, plant
from .equal_families import rewritten

# ConvNeXt ------------------------------------------------------------------------------------------


@fault("port-convnext/epsilon", "trunk.1.0", "add rsqrt", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")

    def norm(self: Any, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        x = (x - mean) * torch.rsqrt((x - mean).square().mean(1, keepdim=True) + 1e-2)
        return self.gain[:, None, None] * x + self.shift[:, None, None]

    plant(b.trunk[1][0], norm=norm)
    return Pair(a, b, inputs)


@fault("port-convnext/norm-over-the-image", "trunk.1.1", "mean sub square pow mul rsqrt add", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")

    def norm(self: Any, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        x = (x - mean) * torch.rsqrt((x - mean).square().mean((2, 3), keepdim=True) + 1e-6)
        return self.gain[:, None, None] * x + self.shift[:, None, None]

    plant(b.trunk[1][1], norm=norm)
    return Pair(a, b, inputs)


@fault("port-convnext/tanh-gelu", "trunk.0.0", "gelu", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")

    def forward(self: Any, x: Tensor) -> Tensor:
        y = self.reduce(F.gelu(self.expand(self.norm(self.depthwise(x))), approximate="tanh"))
        return x + self.gamma * y

    plant(b.trunk[0][0], forward=forward)
    return Pair(a, b, inputs)


@fault("port-convnext/layer-scale-left-out", "trunk.1.0", "mul add", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")
    left_out = lambda self, x: x + self.reduce(F.gelu(self.expand(self.norm(self.depthwise(x)))))  # noqa: E731
    plant(b.trunk[1][0], forward=left_out)
    return Pair(a, b, inputs)


@fault("port-convnext/scaled-after-the-sum", "trunk.0.0", "mul add", "values wiring extra")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")
    late = lambda self, x: self.gamma * (x + self.reduce(F.gelu(self.expand(self.norm(self.depthwise(x))))))  # noqa: E731
    plant(b.trunk[0][0], forward=late)
    return Pair(a, b, inputs)


@fault("port-convnext/largest-for-mean", ".", "adaptive_max_pool2d mean adaptive_avg_pool2d max", "values missing")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")
    plant(b, pool=lambda self, x: F.adaptive_max_pool2d(x, 1).flatten(1))
    return Pair(a, b, inputs)


@fault("port-convnext/kernel-transposed", "trunk.1.1.depthwise", "conv2d", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("convnext")
    conv = b.trunk[1][1].depthwise
    conv.weight.data = conv.weight.data.transpose(2, 3).contiguous()
    return Pair(a, b, inputs)


# ResNet --------------------------------------------------------------------------------------------


@fault("port-resnet/epsilon", "rest.1", "add", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")
    b.rest[1].eps = 1e-2
    return Pair(a, b, inputs)


@fault("port-resnet/padded-with-zeros-before-the-pool", ".", "pad max_pool2d", "constant values extra")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")
    b.first[2] = torch.nn.Identity()  # so that zeros show
    plant(b, shrink=lambda self, x: F.max_pool2d(F.pad(x.relu(), (1, 1, 1, 1), value=1.0), 3, 2))
    return Pair(a, b, inputs)


@fault("port-resnet/padding-left-out", "rest.2", "conv2d pad", "constant values extra")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")

    def conv(self: Any, x: Tensor, which: int) -> Tensor:
        kernel = self.kernels[which]
        if kernel.shape[-1] == 1:
            return F.conv2d(x, kernel)
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel)

    plant(b.rest[2], conv=conv)
    return Pair(a, b, inputs)


@fault("port-resnet/statistics-of-the-batch", "rest.0", "mean var sub truediv div sqrt", "values extra")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")

    def norm(self: Any, x: Tensor, which: int) -> Tensor:
        gain, shift = (getattr(self, f"{name}_{which}")[:, None, None] for name in ("weight", "bias"))
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + self.eps) * gain + shift

    plant(b.rest[0], norm=norm)
    return Pair(a, b, inputs)


@fault("port-resnet/shortcut-without-norm", "rest.1", "BatchNorm2d conv2d add batch_norm sub", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")
    plant(b.rest[1], beside=lambda self, x: self.conv(x, 3))
    return Pair(a, b, inputs)


@fault("port-resnet/activation-before-the-sum", "rest.2", "add relu", "values wiring missing")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")
    plant(b.rest[2], forward=lambda self, x: self.beside(x) + torch.relu(self.branch(x)))
    return Pair(a, b, inputs)


@fault("port-resnet/leaky", "rest.0", "leaky_relu clamp relu", "values extra")
def _() -> Pair:
    a, b, inputs = rewritten("resnet")

    def branch(self: Any, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.conv(x, 0), 0), 0.01)
        x = self.norm(self.conv(x, 1), 1).clamp(min=0)
        return self.norm(self.conv(x, 2), 2)

    plant(b.rest[0], branch=branch)
    return Pair(a, b, inputs)


# U-Net ---------------------------------------------------------------------------------------------


@fault("port-unet/joined-the-other-way-round", ".", "cat", "wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("unet")
    plant(b, join=lambda self, above, kept: torch.cat([kept, above], dim=1))
    return Pair(a, b, inputs)


@fault("port-unet/corners-aligned", ".", "interpolate", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("unet")
    plant(b, larger=lambda self, x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True))
    return Pair(a, b, inputs)


@fault("port-unet/mean-for-max", ".", "mean avg_pool2d max_pool2d amax", "values")
def _() -> Pair:
    a, b, inputs = rewritten("unet")
    plant(b, half=lambda self, x: x.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(-2, -1)))
    return Pair(a, b, inputs)


@fault("port-unet/groups", "norm", "group_norm", "constant")
def _() -> Pair:
    a, b, inputs = rewritten("unet")
    b.norm.num_groups = 8
    return Pair(a, b, inputs)


@fault("port-unet/norm-not-folded", "twice.1.0", "conv2d BatchNorm2d batch_norm", "weights values missing")
def _() -> Pair:
    a, b, inputs = rewritten("unet")
    conv = a.down1.conv1
    b.twice[1][0].kernel.data.copy_(conv.weight)
    b.twice[1][0].offset.data.copy_(conv.bias)
    return Pair(a, b, inputs)


@fault("port-unet/one-offset", "twice.3.1", "conv2d", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("unet")
    b.twice[3][1].offset.data[2] += 0.4
    return Pair(a, b, inputs)


# Tagger --------------------------------------------------------------------------------------------


@fault("port-tagger/not-turned-back", ". back", "stack flip cat lstm Walk", "values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("tagger")

    def forward(self: Any, x: Tensor) -> Tensor:
        state = cell = x.new_zeros(x.shape[0], self.size)
        states = []
        for at in reversed(range(x.shape[1])):
            state, cell = self.step(self.into(x[:, at]) + self.again(state), cell)
            states.append(state)
        return torch.stack(states, dim=1)

    plant(b.back, forward=forward)
    return Pair(a, b, inputs)


# The reference has one operation for all of it: where its parts come together, or anything in the guilty step.
@fault(
    "port-tagger/gates-in-another-order",
    ". forth",
    "chunk getitem sigmoid tanh mul add cat stack",
    "values wiring constant",
)
def _() -> Pair:
    a, b, inputs = rewritten("tagger")

    def step(self: Any, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        i, g, f, o = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell

    plant(b.forth, step=step)
    return Pair(a, b, inputs)


@fault("port-tagger/one-recurrent-weight", "back.again", "linear", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("tagger")
    b.back.again.weight.data[3, 4] += 1.0
    return Pair(a, b, inputs)


@fault("port-tagger/directions-swapped", ".", "cat", "wiring values")
def _() -> Pair:
    a, b, inputs = rewritten("tagger")
    plant(b, joined=lambda self, x: torch.cat([self.back(x), self.forth(x)], dim=-1))
    return Pair(a, b, inputs)


# Encoder -------------------------------------------------------------------------------------------


@fault("port-encoder/scale", "floors.1", "mul", "constant values")
def _() -> Pair:
    a, b, inputs = rewritten("encoder")

    def attend(self: Any, x: Tensor, padding: Tensor) -> Tensor:
        q, k, v = (self.heads(each(x)) for each in (self.q, self.k, self.v))
        scores = (q * 0.25 @ k.transpose(-1, -2)).masked_fill(padding[:, None, None], float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    plant(b.floors[1], attend=attend)
    return Pair(a, b, inputs)


@fault("port-encoder/padding-seen", "floors.0", "masked_fill softmax add", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("encoder")

    def attend(self: Any, x: Tensor, padding: Tensor) -> Tensor:
        q, k, v = (self.heads(each(x)) for each in (self.q, self.k, self.v))
        return self.out(((q * 0.5 @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2))

    plant(b.floors[0], attend=attend)
    return Pair(a, b, inputs)


@fault("port-encoder/norm-after", "floors.1 floors.1.one floors.1.q", "LayerNorm Linear add linear layer_norm -")
def _() -> Pair:
    a, b, inputs = rewritten("encoder")

    def forward(self: Any, x: Tensor, padding: Tensor) -> Tensor:
        x = self.one(x + self.attend(x, padding))
        return self.two(x + self.down(F.gelu(self.up(x))))

    plant(b.floors[1], forward=forward)
    return Pair(a, b, inputs)


@fault("port-encoder/divided-by-all", ".", "truediv div", "constant values wiring missing")
def _() -> Pair:
    a, b, inputs = rewritten("encoder")
    all_words = lambda self, x, padding: torch.einsum("bts,bt->bs", x, (~padding).float()) / x.shape[1]  # noqa: E731
    plant(b, pooled=all_words)
    return Pair(a, b, inputs)


@fault("port-encoder/words-not-scaled", ".", "mul add Embedding embedding", "missing values wiring")
def _() -> Pair:
    a, b, inputs = rewritten("encoder")

    def forward(self: Any, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for floor in self.floors:
            x = floor(x, padding)
        return self.answer(self.pooled(self.top(x), padding))

    plant(b, forward=forward)
    return Pair(a, b, inputs)


@fault("port-encoder/value-weights-of-the-keys", "floors.0.v", "linear", "weights values")
def _() -> Pair:
    a, b, inputs = rewritten("encoder")
    b.floors[0].v.weight.data.copy_(b.floors[0].k.weight)
    return Pair(a, b, inputs)
