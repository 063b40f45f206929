"""Trainings whose weights begin badly, whose classes are unequal, whose loss is a cosine; and healthy ones like them.

They were written beside the rules, after the faults that SageMaker Debugger's rules are named after.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from learn_parts import Cases, Conv, Loop, Pair, Writer, adam, blobs, checkered, images, mlp, sgd, text, usual

CASES = Cases()
fault, healthy = CASES.fault, CASES.healthy


def drawn(net: nn.Module, deviation: float, bad: bool = True) -> nn.Module:
    """Return a model whose matrices are drawn anew, all with one deviation, where ``bad``."""
    for parameter in net.parameters() if bad else ():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=deviation)
    return net


# Weights that begin too large or too small -------------------------------------------------------


@fault("weights too large")
def drawn_with_one(bad: bool) -> Loop:
    net = drawn(mlp(layers=4), 1.0, bad)
    return usual(net, sgd(net), blobs(), steps=60)


@fault("weights too large")
def convolutions_with_one(bad: bool) -> Loop:
    net = drawn(Conv(), 1.0, bad)
    return usual(net, adam(net, 1e-3), images())


@fault("weights too large")
def head_of_ten(bad: bool) -> Loop:
    net = Writer()
    if bad:
        nn.init.normal_(net.head.weight, std=10.0)
    return usual(net, adam(net, 1e-3), text(), steps=60)


@fault("weights too large", "saturated activation")
def tanhs_of_five(bad: bool) -> Loop:
    net = drawn(mlp(layers=4, act=nn.Tanh), 3.0, bad)
    return usual(net, sgd(net, 0.005), blobs())


@fault("weights too large", "loss not finite")
def regression_with_five(bad: bool) -> Loop:
    net = drawn(mlp(classes=1), 5.0, bad)
    return usual(net, sgd(net, 1e-3), _line(), F.mse_loss)


@fault("weights too small")
def drawn_with_a_thousandth(bad: bool) -> Loop:
    net = drawn(mlp(layers=4), 1e-3, bad)
    return usual(net, sgd(net, 0.05), blobs())


@fault("weights too small")
def convolutions_with_a_thousandth(bad: bool) -> Loop:
    net = drawn(Conv(), 1e-3, bad)
    return usual(net, sgd(net, 0.05), images())


@fault("units alike")
def all_a_tenth(bad: bool) -> Loop:
    net = mlp()
    for parameter in net.parameters() if bad else ():
        nn.init.constant_(parameter, 0.1)
    return usual(net, adam(net), blobs())


@fault("units alike")
def convolutions_of_ones(bad: bool) -> Loop:
    net = Conv()
    for parameter in net.parameters() if bad else ():
        nn.init.constant_(parameter, 0.02)
    return usual(net, adam(net, 1e-3), images())


@fault("saturated activation", "weights too large")
def sigmoids_of_fifty(bad: bool) -> Loop:
    net = mlp(layers=2, act=nn.Sigmoid)
    if bad:
        for layer in (net[0], net[2]):
            nn.init.constant_(layer.bias, 50.0)
    return usual(net, sgd(net, 0.1), blobs(), steps=300)


# Classes that are unequal ------------------------------------------------------------------------


def _rare(share: float, far: float = 1.0) -> Pair:
    y = (torch.rand(64) < share).long()
    return torch.randn(64, 20) + far * y[:, None], y


@fault("targets unequal", mends=False)
def one_of_fifty(bad: bool) -> Loop:
    net = mlp(classes=2)
    return usual(net, SGD(net.parameters(), 0.05), lambda: _rare(0.02, 0.1), steps=150)


@healthy
def one_of_fifty_is_learned() -> Loop:
    net = mlp(classes=2)
    return usual(net, adam(net, 1e-2), lambda: _rare(0.02, 2.0), steps=300)


@healthy
def one_of_eight_is_learned() -> Loop:
    net = mlp(classes=1)

    def batch() -> Pair:
        x, y = _rare(0.12, 1.0)
        return x, y[:, None].float()

    return usual(net, adam(net, 3e-3), batch, F.binary_cross_entropy_with_logits)


# Cosines and contrast ----------------------------------------------------------------------------


_TURN = torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(2)))[0]


def _turned() -> Pair:
    x = torch.randn(64, 20)
    return x, x @ _TURN


@fault("wrong sign")
def cosine_uphill(bad: bool) -> Loop:
    net = mlp(classes=20)
    sign = 1 if bad else -1
    return usual(net, adam(net), _turned, lambda out, y: sign * F.cosine_similarity(out, y).mean())


@healthy
def cosine_downhill() -> Loop:
    net = mlp(classes=20)
    return usual(net, adam(net), _turned, lambda out, y: (1 - F.cosine_similarity(out, y, dim=-1)).mean())


def _contrast(out: Tensor, y: Tensor) -> Tensor:
    a, b = F.normalize(out, dim=1), F.normalize(y, dim=1)
    return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))


@fault("targets unrelated")
def pairs_of_others(bad: bool) -> Loop:
    net = mlp(classes=20)

    def batch() -> Pair:
        x, y = _turned()
        return x, y[torch.randperm(len(y))] if bad else y

    return usual(net, adam(net), batch, _contrast)


@healthy
def pairs_that_belong() -> Loop:
    net = mlp(classes=20)
    return usual(net, adam(net), _turned, _contrast)


# Weights that begin in ways that are meant -------------------------------------------------------


@healthy
def orthogonal_of_relu() -> Loop:
    net = mlp()
    for parameter in net.parameters():
        if parameter.dim() > 1:
            nn.init.orthogonal_(parameter, gain=math.sqrt(2))
    return usual(net, adam(net), blobs())


@healthy
def kaiming_normal() -> Loop:
    net = Conv()
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return usual(net, sgd(net), images())


class Branch(nn.Module):
    """A residual branch that begins as nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.down.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


@healthy
def branches_of_nothing() -> Loop:
    net = nn.Sequential(nn.Linear(20, 32), Branch(32), Branch(32), Branch(32), nn.Linear(32, 5))
    return usual(net, adam(net), blobs())


@healthy
def small_with_norms() -> Loop:
    net = drawn(Writer(), 0.005)
    return usual(net, adam(net), text())


class Waves(nn.Module):
    """Frequencies that learn, and what is made of them."""

    def __init__(self) -> None:
        super().__init__()
        self.frequencies, self.body = nn.Linear(2, 64), mlp(64, 1)
        nn.init.normal_(self.frequencies.weight, std=6.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(torch.sin(self.frequencies(x)))


@healthy
def waves_of_points() -> Loop:
    net = Waves()

    def batch() -> Pair:
        x = torch.rand(128, 2)
        return x, torch.sin(9 * x[:, :1]) * torch.cos(7 * x[:, 1:])

    return usual(net, adam(net), batch, F.mse_loss, steps=300)


@healthy
def gates_that_begin_shut() -> Loop:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.shut, self.body = nn.Linear(20, 20), nn.Sigmoid(), mlp()
            nn.init.constant_(self.gate.bias, -6.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x + self.shut(self.gate(x)) * x)

    net = Gated()
    return usual(net, adam(net), blobs())


@healthy
def alike_with_dropout() -> Loop:
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 5))
    nn.init.constant_(net[0].weight, 0.05)
    return usual(net, Adam(net.parameters(), 1e-2), blobs(), steps=200)


@healthy
def slow_points() -> Loop:
    net = mlp(6, 2, act=nn.Tanh)
    return usual(net, AdamW(net.parameters(), lr=1e-2), checkered(), steps=200)


def _line() -> object:
    weights = torch.randn(20, 1, generator=torch.Generator().manual_seed(5))

    def batch() -> Pair:
        x = torch.randn(64, 20)
        return x, x @ weights / 4

    return batch
