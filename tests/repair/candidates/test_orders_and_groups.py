"""Operations in another order, channels in other groups, numbers without a factor: each is told by what repairs it.

Each kind has a fault that it repairs and one beside it where it must not be told.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.comparison.result import Row

Body = Callable[["Layer", Tensor], Tensor]
X = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1))


class Layer(nn.Module):
    """A layer between two projections, which computes what its function does."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)
        self.bias = nn.Parameter(torch.randn(12))
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self, self.first(x)))  # type: ignore[no-any-return]


def norm(x: Tensor, groups: int) -> Tensor:
    """Divide channels by their root mean square, in groups."""
    parts = x.unflatten(-1, (groups, -1))
    return (parts * (parts.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).flatten(-2)


def norm_of_all(self: Layer, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def over_time(x: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the states of a recurrence."""
    states = [x[:, 0]]
    for at in range(1, x.shape[1]):
        states.append(states[-1] * 0.5 + step(x[:, at] + states[-1]))
    return torch.stack(states, 1)


def waves(x: Tensor, factor: float) -> Tensor:
    """Return sines and cosines of channels, of four frequencies."""
    turned = x[..., :2] * factor
    angles = torch.cat([turned, turned * 2, turned * 4], -1)
    return torch.stack([angles.sin(), angles.cos()], -1).unflatten(2, (3, 2)).transpose(-1, -2).flatten(2)


def in_two_lines(x: Tensor, factor: float = 1) -> Tensor:
    """Return the same as a port writes it."""
    parts = []
    for at in range(3):
        parts.append(torch.sin(2**at * x[..., :2]))
        parts.append(torch.cos(2**at * x[..., :2]))
    return torch.cat(parts, -1)


def attended(parts: tuple[Tensor, ...]) -> Tensor:
    """Return an attention of three parts, repeated to the width of the layer."""
    query, key, value = parts
    return (torch.softmax(query @ key.mT, -1) @ value).repeat(1, 1, 3)


def whole_parts(self: Layer, x: Tensor) -> Tensor:
    return attended(x.chunk(3, -1))


def parts_in_turn(self: Layer, x: Tensor) -> Tensor:
    return attended(x.unflatten(-1, (2, 3, 2)).transpose(-2, -3).flatten(-2).unbind(-2))


def gates(x: Tensor, order: tuple[int, ...]) -> Tensor:
    """Return a state of four gates, repeated to the width of the layer."""
    parts = x.split(3, -1)
    i, f, c, o = (parts[at] for at in order)
    return (o.sigmoid() * (f.sigmoid() * 0.5 + i.sigmoid() * c.tanh()).tanh()).repeat(1, 1, 4)


KINDS: dict[str, tuple[Body, Body, str]] = {
    "a bias behind the activation": (
        lambda self, x: over_time(x, lambda h: (h + self.bias).sigmoid()),
        lambda self, x: over_time(x, lambda h: h.sigmoid() + self.bias),
        "sigmoid stands before add in b, where a's values need it behind",
    ),
    "a mean before the activation": (
        lambda self, x: over_time(x, lambda h: F.elu(torch.stack([h, h.roll(1, -1)]) + self.bias).mean(0)),
        lambda self, x: over_time(x, lambda h: F.elu(torch.stack([h, h.roll(1, -1)]).mean(0) + self.bias)),
        "mean stands before add, elu in b, where a's values need it behind",
    ),
    "a norm in groups": (
        lambda self, x: norm(x, 3),
        norm_of_all,
        "it is over all 12 of the last dimension in b, where a's values need it over each of 3 groups of 4",
    ),
    "a factor of several numbers": (
        lambda self, x: waves(x, math.pi),
        lambda self, x: in_two_lines(x),
        "3.141592653589793 in a, 1 in b",
    ),
    "parts in turn": (
        parts_in_turn,
        whole_parts,
        "the channels of chunk lie as 3 parts in each of 2 groups, and b takes them as 3 whole parts",
    ),
    "a number in a tensor": (
        lambda self, x: over_time(x, lambda h: h.clamp(min=0.25)),
        lambda self, x: over_time(x, lambda h: torch.where(h < 0.25, torch.tensor(1.0), h)),
        "1 in b, where a's values need 0.25",
    ),
    "gates in another order": (
        lambda self, x: gates(x, (0, 2, 3, 1)),
        lambda self, x: gates(x.clone(), (0, 1, 2, 3)),
        "the 4 results of split are taken as 1 to 4 in b, where a's values need them as 1, 3, 4, 2",
    ),
}


def first(one: Body, other: Body) -> Row:
    found = compare_models(Layer(one), Layer(other), X).first
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_repairs_a_port_is_told_and_proven(kind: str) -> None:
    one, other, because = KINDS[kind]
    row = first(one, other)
    assert because in row.because and row.proven, (row.because, row.repair)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_not_told_where_something_else_differs(kind: str) -> None:
    one, _, because = KINDS[kind]
    row = first(one, lambda self, x: one(self, x) * (1 + x.cumsum(1).cos()))
    assert because not in row.because


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_not_told_of_a_port_that_is_right(kind: str) -> None:
    one, _, _ = KINDS[kind]
    assert not compare_models(Layer(one), Layer(one), X).findings


def test_a_line_that_picks_another_row_of_its_weights_says_nothing_of_their_order() -> None:
    """One row for all layers is taken from a table that lies as that of a."""

    def rows(of: Callable[[int], int]) -> Body:
        def body(self: Layer, x: Tensor) -> Tensor:
            table = self.last.weight
            for at in range(3):
                x = x * table[of(at)] + x.mean(1, keepdim=True)
            return x

        return body

    row = first(rows(lambda at: at), rows(lambda at: 0))
    assert "in the rows of its weight" not in row.because


def test_a_number_that_a_later_norm_takes_away_again_is_not_told_as_moved() -> None:
    """Behind the activation the norm removes it, as it does where it is left out: that says nothing of an order."""

    def body(number: float) -> Body:
        return lambda self, x: F.layer_norm(torch.tanh(x.cumsum(1) + number), (12,))

    row = first(body(0.0), body(0.5))
    assert "stands" not in row.because
    assert (row.op, row.kind, row.because) == ("add", "constant", "0 in a, 0.5 in b")


class Joined(nn.Module):
    """A product of two parts with a weight that is stored by rows of inputs; ``turned``: with its halves exchanged."""

    def __init__(self, order: tuple[int, int], turned: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        weight = torch.randn(12, 12)
        self.first, self.last, self.order = nn.Linear(6, 6), nn.Linear(12, 3), order
        self.weight = nn.Parameter(weight.roll(6, 0) if turned else weight)

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.sin(self.first(x)), torch.cos(self.first(x))
        return self.last(torch.tanh(torch.cat([parts[at] for at in self.order], -1) @ self.weight))  # type: ignore[no-any-return]


def test_parts_joined_the_other_way_round_are_not_told_as_rows_of_the_weight_that_takes_them() -> None:
    row = compare_models(Joined((0, 1)), Joined((1, 0)), X).first
    assert row is not None and row.kind == "wiring" and "weight" not in row.because, row.because
    row = compare_models(Joined((0, 1)), Joined((0, 1), turned=True), X).first
    assert row is not None and row.kind == "weights", row.because


def test_a_fused_layer_between_two_faults_does_not_hide_what_they_do() -> None:
    """A replay would pass over it: only a run of the model shows what it makes of a new value."""
    torch.manual_seed(0)
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 1, enable_nested_tensor=False)
    one = nn.Sequential(nn.Linear(6, 6), layers, nn.Linear(6, 2)).eval()
    other = copy.deepcopy(one)
    with torch.no_grad():
        other[0].bias += 1
        alone = compare_models(one, other, X)
        other[1].layers[0].linear1.weight *= 1.5
        both = compare_models(one, other, X)
        other[2].bias += 0.1
        three = compare_models(one, other, X)
    assert [(row.where, row.proven) for row in alone.findings] == [("0/linear", True)]
    for found in (both, three):  # no edit of the products repairs what the layer has
        assert (found.findings[0].where, found.findings[0].because) == ("0/linear", "0.bias is that of a + 1")
        assert not any(row.proven or row.doubtful for row in found.findings)
