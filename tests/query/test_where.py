"""Conditions on statistics, as text."""

from __future__ import annotations

import math

import pytest
import torch

from fxdebug import fx_debug
from fxdebug.query.where import FACTS, compile_condition
from support.trees import Does


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("count == 6", True), ("numel == 6 and ndim == 2", True), ("nan", True), ("not nan", False), ("inf == 2", True),
        ("posinf == neginf == 1", True), ("zeros == 1", True), ("-3 < min < max", True), ("absmax > 2 ** 3", False),
        ("mean > 1e300 * 1e300", False), ("std / 0 > 1", False), ("finite < count", True), ("requires_grad", False),
        ("(nan + inf) / count >= 0.5", True), ("absmax > 9 ** 9 ** 9 ** 9", False),
    ],
)  # fmt: skip
def test_a_line_is_arithmetic_over_statistics(line, holds):
    trace = fx_debug(Does(lambda self, x: x * 1), torch.tensor([[math.nan, math.inf, -1], [-math.inf, 2, 0]]))
    assert compile_condition(line)(trace.root.outputs[0]) is holds


def test_a_fact_that_is_not_known_makes_its_comparison_false():
    trace = fx_debug(Does(lambda self, x: x * 1), torch.ones(2, device="meta"))
    value = trace.root.outputs[0]
    unknown = [name for name in FACTS if name not in ("numel", "ndim", "requires_grad")]
    assert [
        name for name in unknown if compile_condition(f"{name} > 0")(value) or compile_condition(f"{name} <= 0")(value)
    ] == []
    assert compile_condition("numel == 2")(value)
