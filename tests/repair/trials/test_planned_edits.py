"""Edits that need the pairs of two runs: each kind repairs a fault that no other one does, and proves nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

Body = Callable[["Layer", Tensor], Tensor]


class Layer(nn.Module):
    """A layer whose code is a function, so that a port of it differs in one line."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def right(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mask = torch.ones(8, 8).tril().bool()
    mixed = (value @ gate.mT).masked_fill(~mask, 0.0) @ value
    return F.leaky_relu(x + mixed * mixed.square().sum(-1, keepdim=True).add(1).rsqrt(), 0.1)


def without_the_sum(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mask = torch.ones(8, 8).tril().bool()
    mixed = (value @ gate.mT).masked_fill(~mask, 0.0) @ value
    return F.leaky_relu(mixed * mixed.square().sum(-1, keepdim=True).add(1).rsqrt(), 0.1)


def without_the_mask(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mixed = (value @ gate.mT) @ value
    return F.leaky_relu(x + mixed * mixed.square().sum(-1, keepdim=True).add(1).rsqrt(), 0.1)


def of_another_value(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mask = torch.ones(8, 8).tril().bool()
    mixed = (value @ value.mT).masked_fill(~mask, 0.0) @ value
    return F.leaky_relu(x + mixed * mixed.square().sum(-1, keepdim=True).add(1).rsqrt() + 0.0 * gate, 0.1)


def with_a_mean(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mask = torch.ones(8, 8).tril().bool()
    mixed = (value @ gate.mT).masked_fill(~mask, 0.0) @ value
    return F.leaky_relu(x + mixed * mixed.square().mean(-1, keepdim=True).add(1).rsqrt(), 0.1)


def of_another_value_and_slope(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mask = torch.ones(8, 8).tril().bool()
    mixed = (value @ value.mT).masked_fill(~mask, 0.0) @ value
    return F.leaky_relu(x + mixed * mixed.square().sum(-1, keepdim=True).add(1).rsqrt() + 0.0 * gate, 0.3)


def with_a_norm_of_torch(layer: Layer, x: Tensor) -> Tensor:
    h = layer.norm(x)
    gate, value = layer.up(h).sigmoid(), layer.down(h)
    mask = torch.ones(8, 8).tril().bool()
    mixed = (value @ gate.mT).masked_fill(~mask, 0.0) @ value
    return F.leaky_relu(x + F.normalize(mixed, dim=-1), 0.1)


X = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))


def first(port: Body, layers: int, *, whole: bool = False) -> tuple[bool, str]:
    torch.manual_seed(0)
    model = nn.Sequential(*[Layer(right) for _ in range(layers)])
    other = copy.deepcopy(model)
    for layer in other:
        layer.body = port
    row = fxdebug.compare_models(model, other, X, budget=60).first
    assert row is not None
    return row.proven, row.repair if whole else row.repair.partition(": with ")[0]


WORDS = {
    without_the_sum: "add of a before leaky_relu",
    without_the_mask: "masked_fill of a before matmul",
    of_another_value: "matmul given what that of a is given",
    with_a_mean: "sum of a in the place of mean",
    with_a_norm_of_torch: "square, sum, add, rsqrt and 1 more of a in the place of all that makes normalize",
}


@pytest.mark.parametrize("port", WORDS, ids=lambda port: port.__name__)
def test_the_edit_that_repairs_a_port_is_proven(port: Body) -> None:
    of_one = "add with 0" if port is with_a_norm_of_torch else WORDS[port]  # in one place an edit of a says more
    assert first(port, 1) == (True, of_one)


@pytest.mark.parametrize("port", WORDS, ids=lambda port: port.__name__)
def test_a_line_that_several_layers_run_is_repaired_in_all_of_them(port: Body) -> None:
    assert first(port, 3) == (True, f"{WORDS[port]}, and at 2 more places of this line")


def test_of_two_faults_the_edit_of_one_proves_nothing() -> None:
    proven, repair = first(of_another_value_and_slope, 1, whole=True)
    assert not proven or "more edit" in repair


def test_a_value_that_b_does_not_have_is_not_taken_from_a() -> None:
    def with_noise(layer: Layer, x: Tensor) -> Tensor:
        return right(layer, x) * x.flip(-1).cos()

    def without(layer: Layer, x: Tensor) -> Tensor:
        return right(layer, x)

    torch.manual_seed(0)
    model = nn.Sequential(Layer(with_noise))
    other = copy.deepcopy(model)
    other[0].body = without  # it lacks the product and all that makes its factor
    row = fxdebug.compare_models(model, other, X, budget=60).first
    assert row is not None and row.proven  # by the operations of a, which are given values of b alone
    assert "cos, mul of a in the place of all that makes " in row.repair


def test_a_weight_that_a_casts_to_the_dtype_it_has_is_made_by_no_operation() -> None:
    def scaled(layer: Layer, x: Tensor) -> Tensor:
        return layer.down(x.softmax(-1) * (1.0 + layer.norm.weight.float()))

    def unscaled(layer: Layer, x: Tensor) -> Tensor:
        return layer.down(x.softmax(-1))

    torch.manual_seed(0)
    model = nn.Sequential(Layer(scaled))
    other = copy.deepcopy(model)
    other[0].body = unscaled
    row = fxdebug.compare_models(
        model, other, X, budget=60
    ).first  # the cast returns the weight itself, as if it had made it
    assert row is not None and row.proven
    assert row.repair.partition(": with ")[0] == "mul left out"


def test_the_first_operation_with_a_name_of_python_is_edited_by_the_name_of_its_node() -> None:
    model = nn.Sequential(Layer(right))
    trace = fxdebug.fx_debug(model, X)
    node = next(op.name for op in trace["0"].graph.ops if op.op == "sum")
    assert node == "sum_1"  # torch.fx leaves the name of Python's own function alone
    changed = fxdebug.edit(model, {f"0/{node}": lambda value: value * 0}, X)
    assert changed.first is not None and changed.first.where == "0/sum" and len(changed.findings) == 1
