"""Measures by all elements of two tensors."""

from __future__ import annotations

import math

import pytest
import torch

from fxdebug.comparison.tolerance import tolerance_of
from support.blocks import changed


def test_the_measures_are_those_of_the_elements():
    comparison = changed(lambda other: other.head.weight[0].mul_(1.5), "tensors")
    a, b = (trace.tensor(trace.root.outputs[0]).double() for trace in (comparison.a, comparison.b))
    measures = comparison.first.measures
    gap = (a - b).abs()
    assert comparison.first.basis == "tensors"
    assert measures.max_abs == pytest.approx(gap.max().item())
    assert measures.mean_abs == pytest.approx(gap.mean().item())
    assert measures.relative == pytest.approx((gap.norm() / a.norm()).item())
    assert measures.cosine == pytest.approx(torch.cosine_similarity(a.flatten(), b.flatten(), 0).item())
    assert measures.sqnr == pytest.approx(-20 * math.log10((gap.norm() / a.norm()).item()))
    assert measures.beyond == pytest.approx((gap > tolerance_of("float32") * a.abs().max()).double().mean().item())
    steps = (a.float().view(torch.int32).long() - b.float().view(torch.int32).long()).abs()
    same_sign = (a * b) > 0
    assert measures.ulp >= int(steps[same_sign].max())
