"""Faults that move elements: views of one value, rows of weights, and modules in another order."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fxdebug

Body = Callable[["Heads", Tensor], Tensor]


class Heads(nn.Module):
    """Values of two heads with a decay, whose code is a function. 6 channels of 6 × 6 tokens: all sizes are equal."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm, self.value, self.out, self.last = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.decay = nn.Parameter(torch.randn(6))
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def right(self: Heads, x: Tensor) -> Tensor:
    x = self.norm(x.permute(0, 2, 3, 1).flatten(1, 2))
    heads = self.value(x).view(2, 36, 2, 3).transpose(1, 2)
    mixed = (heads.softmax(2).cumsum(2) * heads).transpose(1, 2).reshape(2, 36, 6)
    return self.last(self.out(mixed * torch.exp(-torch.exp(self.decay)))).sum(1)


def without_the_transpose(self: Heads, x: Tensor) -> Tensor:
    x = self.norm(x.permute(0, 2, 3, 1).flatten(1, 2))
    heads = self.value(x).view(2, 36, 2, 3).transpose(1, 2)
    mixed = (heads.softmax(2).cumsum(2) * heads).reshape(2, 36, 6)
    return self.last(self.out(mixed * torch.exp(-torch.exp(self.decay)))).sum(1)


def of_another_dimension(self: Heads, x: Tensor) -> Tensor:
    x = self.norm(x.permute(0, 2, 3, 1).flatten(1, 2))
    heads = self.value(x).view(2, 36, 2, 3).transpose(1, 2)
    mixed = (heads.softmax(2).cumsum(2) * heads).transpose(1, 2).reshape(2, 36, 6)
    return self.last(self.out(mixed * torch.exp(-torch.exp(self.decay)))).sum(2)


X = torch.randn(2, 6, 6, 6, generator=torch.Generator().manual_seed(0))


def told(a: nn.Module, b: nn.Module) -> tuple[str, str | None, str]:
    row = fxdebug.compare_models(a, b, X).first
    assert row is not None
    return row.where, row.kind, row.because


BEFORE = "dimensions 1 and 2 stand the other way round before reshape than in a"


@pytest.mark.parametrize(
    ("port", "where", "because"),
    [
        (without_the_transpose, "Heads/reshape", BEFORE),
        (of_another_dimension, "Heads/sum", "dim=1 in a, dim=2 in b: its result is 2×1 in a, 2×36 in b"),
    ],
)
def test_another_view_or_dimension_is_told_by_what_differs(port: Body, where: str, because: str) -> None:
    found = told(Heads(right), Heads(port))
    assert (found[0], found[2]) == (where, because)


@pytest.mark.parametrize(
    ("name", "rows", "because"),
    [
        ("decay", [0, 4, 2, 3, 1, 5], "decay is that of a with elements 1 and 4 exchanged"),
        ("value.weight", [0, 2, 4, 1, 3, 5], "value.weight is that of a with its even rows before the odd ones"),
    ],
)
def test_rows_of_a_weight_are_told_where_a_later_operation_shows_them(name: str, rows: list[int], because: str) -> None:
    model = Heads(right)
    port = copy.deepcopy(model)
    with torch.no_grad():
        weight = port.get_parameter(name)
        weight.copy_(weight[rows].clone())
    _, kind, said = told(model, port)
    assert (kind, said) == ("weights", because)


def test_a_setting_is_told_behind_a_view_with_equal_sizes() -> None:
    model = Heads(right)
    port = copy.deepcopy(model)
    port.norm.eps = 0.03
    runs = [fxdebug.fx_debug(each, X, values="tensors") for each in (model, port)]
    row = fxdebug.compare(*runs).first
    assert row is not None and (row.where, row.because) == ("norm/layer_norm", "eps=1e-05 in a, eps=0.03 in b")


class Chain(nn.Module):
    def __init__(self, *order: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm, self.mix = nn.LayerNorm(6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        for name in self.order:
            x = self.get_submodule(name)(x)
        return x.mean(-1)


def test_two_modules_in_another_order_are_told_by_the_move_that_repairs() -> None:
    found = fxdebug.compare_models(Chain("mix", "norm"), Chain("norm", "mix"), X).findings
    assert [(row.kind, row.where, row.because, row.proven) for row in found] == [
        (
            "wiring",
            "norm/layer_norm",
            "layer_norm stands before linear, tanh in b, where a's values need it behind",
            True,
        )
    ]


def test_two_modules_in_another_order_are_told_by_what_each_is_given_where_nothing_is_run_again() -> None:
    runs = [fxdebug.fx_debug(Chain(*order), X, values="tensors") for order in (("mix", "norm"), ("norm", "mix"))]
    found = fxdebug.compare(*runs).findings
    assert ("wiring", "norm is given the result of mix.1/tanh in a, of Chain/mul in b") in {
        (row.kind, row.because) for row in found
    }
    assert found[0].kind == "wiring"
