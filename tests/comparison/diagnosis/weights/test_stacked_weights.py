"""Weights of experts in a stack against a list: nothing is found in a right port, and a wrong slice is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison
from support import sweep
from support.stacked_experts import WIDTH, X, listed, stacked

LAYOUTS = {
    "rows, one by one": (True, "loop"),
    "columns, one by one": (False, "loop"),
    "rows, bmm": (True, "bmm"),
    "columns, bmm": (False, "bmm"),
    "rows, einsum": (True, "einsum"),
    "columns in turn, einsum": (False, "einsum", True),
    "rows in turn, one by one": (True, "loop", True),
}
WAYS = ("stats", "tensors", "models")


def compared(a: Any, b: Any, way: str) -> Comparison:
    with torch.no_grad():
        if way == "models":
            return compare_models(a, b, X)
        return compare(*(fx_debug(model, X, values=way) for model in (a, b)))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_right_port_with_stacked_experts_is_equal_in_both_directions(layout, way):
    a = listed()
    b = stacked(a, *LAYOUTS[layout])
    for one, other in ((a, b), (b, a), (b, stacked(a, True, "bmm"))):
        found = compared(one, other, way)
        assert (found.findings, found.verdict) == ((), "equal")


def _exchanged(weight: torch.Tensor, one: int, other: int) -> None:
    weight[[one, other]] = weight[[other, one]].clone()


def _halves_exchanged(layer: Any, number: slice) -> None:
    layer.gate_up[number] = layer.gate_up[number].roll(WIDTH, -2 if layer.rows else -1)


FAULTS: dict[str, tuple[Callable[[Any], object], str]] = {
    "two experts exchanged": (
        lambda layer: _exchanged(layer.gate_up, 1, 2),
        "slice 1 of layers.1.gate_up holds layers.1.experts.2.gate_proj.weight and "
        "layers.1.experts.2.up_proj.weight of a, not layers.1.experts.1.gate_proj.weight and "
        "layers.1.experts.1.up_proj.weight",
    ),
    "the way down of two experts exchanged": (
        lambda layer: _exchanged(layer.down, 0, 3),
        "slice 0 of layers.1.down holds layers.1.experts.3.down_proj.weight of a, not "
        "layers.1.experts.0.down_proj.weight",
    ),
    "an expert that was not loaded": (
        lambda layer: layer.gate_up[2].zero_(),
        "slice 2 of layers.1.gate_up is zero, layers.1.experts.2.gate_proj.weight and "
        "layers.1.experts.2.up_proj.weight of a is not",
    ),
    "an expert loaded twice": (
        lambda layer: layer.down[2].copy_(layer.down[1]),
        "slice 2 of layers.1.down holds layers.1.experts.1.down_proj.weight of a, not "
        "layers.1.experts.2.down_proj.weight",
    ),
    "an expert with other numbers": (
        lambda layer: layer.down[3].add_(0.1),
        "slice 3 of layers.1.down holds other numbers than layers.1.experts.3.down_proj.weight of a",
    ),
}


@pytest.mark.parametrize(("layout", "fault", "way"), sweep.spread(LAYOUTS, FAULTS, WAYS, rounds=3))
def test_the_wrong_slice_of_a_stack_is_named(fault, layout, way):
    plant, because = FAULTS[fault]
    a = listed()
    b = stacked(a, *LAYOUTS[layout])
    with torch.no_grad():
        plant(b.layers[1])
    first = compared(a, b, way).first
    assert first is not None
    assert (first.path, first.kind, first.because) == ("layers.1", "weights", because)
    product = {"loop": "linear" if LAYOUTS[layout][0] else "matmul"}.get(LAYOUTS[layout][1], LAYOUTS[layout][1])
    assert first.op == product


@pytest.mark.parametrize(("layout", "number", "way"), sweep.spread(LAYOUTS, [slice(None), slice(1, 2)], WAYS, rounds=2))
def test_halves_of_slices_in_other_places_than_in_other_layers_are_named(number, layout, way):
    a = listed()
    b = stacked(a, *LAYOUTS[layout])
    with torch.no_grad():
        _halves_exchanged(b.layers[1], number)
    first = compared(a, b, way).first
    assert first is not None
    assert (first.path, first.kind) == ("layers.1", "weights")
    assert "layers.1.gate_up" in first.because


@pytest.mark.parametrize("way", WAYS)
def test_a_list_beside_a_stack_names_its_own_weight(way):
    a = listed()
    reference = stacked(a, True, "bmm")
    with torch.no_grad():
        one, other = a.layers[1].experts[1].down_proj.weight, a.layers[1].experts[2].down_proj.weight
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)
    first = compared(reference, a, way).first
    assert first is not None
    assert (first.path, first.op, first.kind) == ("layers.1.experts.1.down_proj", "linear", "weights")
    assert first.because == (
        "layers.1.experts.1.down_proj.weight holds slice 2 of layers.1.down of a, not slice 1 of layers.1.down"
    )
