"""Which matrices are as torch draws them, and which models are trained: at the bounds, from weights alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fxdebug.features.shared.drawn.as_drawn import (
    DrawnPart,
    are_as_drawn,
    drawn_as,
    is_readable,
    is_trained,
    parts_as_drawn,
)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def norm(spread: float) -> nn.LayerNorm:
    made = nn.LayerNorm(2)
    made.weight.data = 1 + spread * torch.tensor([-1.0, 1.0]) / math.sqrt(2)
    return made


def trained(layer: nn.Linear) -> nn.Linear:
    """Give a layer weights and biases beyond the bound that torch draws within."""
    layer.weight.data *= 3
    assert layer.bias is not None
    layer.bias.data = torch.linspace(-2, 2, len(layer.bias))
    return layer


def test_a_model_is_trained_where_most_norms_are_spread_wider_than_any_are_drawn() -> None:
    assert is_trained(nn.Sequential(norm(0.031))) and not is_trained(nn.Sequential(norm(0.029)))
    assert not is_trained(nn.Sequential(norm(0.1), norm(0.0)))  # a half is not most
    assert is_trained(nn.Sequential(norm(0.1), norm(0.1), norm(0.0)))
    assert not is_trained(nn.ReLU())


def test_without_norms_most_biases_tell() -> None:
    fresh = nn.Linear(4, 8)
    assert not is_trained(nn.Sequential(fresh)) and is_trained(nn.Sequential(trained(nn.Linear(4, 8))))
    assert not is_trained(nn.Sequential(fresh, trained(nn.Linear(4, 8))))
    alike = nn.Linear(4, 8)
    alike.bias.data.fill_(3.0)  # a bias that was set
    assert not is_trained(nn.Sequential(alike))


@pytest.mark.parametrize(("factor", "is_drawn"), [(1.0, True), (1.02, False), (0.97, False)])
def test_uniform_numbers_up_to_the_bound_are_torchs_default(factor: float, is_drawn: bool) -> None:
    layer = nn.Linear(64, 64)
    said = "uniform within ±0.125, torch's default"
    assert drawn_as(layer, layer.weight.detach() * factor, None) == (said if is_drawn else "")
    assert drawn_as(nn.Embedding(64, 64), layer.weight.detach(), None) == ""


@pytest.mark.parametrize(("factor", "is_drawn"), [(1.0, True), (1.1, False), (0.9, False)])
def test_normal_numbers_are_those_of_a_configuration_where_rows_and_columns_are_alike(
    factor: float, is_drawn: bool
) -> None:
    weight = torch.randn(64, 48) * 0.02
    said = "normal, deviation 0.02, initializer_range"
    assert drawn_as(nn.Linear(48, 64), weight * factor, 0.02) == (said if is_drawn else "")
    longer = weight * torch.linspace(0.5, 1.5, 64).unsqueeze(1)
    assert drawn_as(nn.Linear(48, 64), longer / longer.std() * 0.02, 0.02) == ""
    assert drawn_as(nn.Linear(48, 64), weight, None) == ""


def small(count: int, out: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(16, out) for _ in range(count)))


def test_small_matrices_tell_together_beside_others_that_are_not_as_drawn() -> None:
    model = small(3, 16)
    moved = {name: lambda one=one: one.detach() * 2 for name, one in model.named_parameters()}
    assert are_as_drawn(model, moved) == ["0.weight", "1.weight", "2.weight"]
    assert are_as_drawn(model, {name: one.detach for name, one in model.named_parameters()}) == []  # others as drawn
    assert are_as_drawn(model, {}) == are_as_drawn(model[:1], moved) == []
    assert are_as_drawn(small(3, 3), moved) == []  # other shapes
    few = small(9, 3)  # 48 elements each: too small to tell with others
    assert are_as_drawn(few, {name: lambda one=one: one.detach() * 2 for name, one in few.named_parameters()}) == []
    trained(model[1])
    assert are_as_drawn(model, moved) == []


class Parts(nn.Module):
    def __init__(self, *, others: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.fresh = small(layers, 16)
        self.old = nn.Sequential(*(trained(nn.Linear(16, 16)) for _ in range(others)))


def test_a_part_that_is_as_drawn_beside_trained_ones_is_named() -> None:
    assert parts_as_drawn(Parts()) == [DrawnPart("fresh", 2, 2, 0)]
    assert parts_as_drawn(Parts(others=1)) == parts_as_drawn(Parts(layers=1)) == []
    frozen = Parts()
    frozen.fresh.requires_grad_(False)
    assert parts_as_drawn(frozen) == []
    moved = Parts()
    trained(moved.fresh[0])
    assert parts_as_drawn(moved) == []


def test_the_length_of_a_weight_that_was_trained_apart_from_its_direction_counts() -> None:
    model = Parts(others=1)
    for layer in model.fresh:
        nn.utils.parametrizations.weight_norm(layer)
    assert parts_as_drawn(model) == []
    for layer in model.fresh:
        layer.parametrizations.weight.original0.data *= 1.5
    assert parts_as_drawn(model) == [DrawnPart("fresh", 2, 3, 2)]


@pytest.mark.parametrize(
    ("weight", "readable"),
    [
        (torch.ones(2), True),
        (torch.ones(2, dtype=torch.long), False),
        (torch.ones(2, device="meta"), False),
        (torch.ones(0), False),
        (nn.UninitializedParameter(), False),
        (nn.Parameter(torch.ones(2)), True),
    ],
)
def test_weights_that_can_be_read_have_numbers(weight: Tensor, readable: bool) -> None:
    assert is_readable(weight) is readable
