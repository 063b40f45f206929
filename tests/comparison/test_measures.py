"""How far two values are apart: by all elements, by samples, by statistics."""

from __future__ import annotations

import math
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.comparison.tolerance import error_between, tolerance_of
from fxdebug.data.values import Stats, sample_positions
from support.blocks import changed, run


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


def test_with_statistics_only_the_rest_is_not_known():
    measures = changed(lambda other: other.head.weight[0].mul_(1.5)).first.measures
    assert measures.basis == "statistics"
    assert (measures.max_abs, measures.cosine, measures.ulp, measures.beyond) == (None, None, None, None)


def test_a_permutation_is_seen_in_samples_and_not_in_statistics():
    class Turned(nn.Module):
        def forward(self, x):
            return x.flip(0) if self.training else x

    a, b = (run(Turned().train(train), values="samples") for train in (False, True))
    assert error_between(a.root.outputs[0].stats, b.root.outputs[0].stats) < 1e-6
    assert not fxdebug.compare(a, b).equal


def test_samples_are_spread_over_all_of_a_value():
    for numel in (17, 100, 4096, 100_003):
        places = sample_positions(numel)
        assert 14 <= len(places) <= 16 and places[0] < numel / 8 and places[-1] > numel * 7 / 8


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), 0.0),
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 3.0, 0.0, 3.0, 3.0, 3.0), 2.0),
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0, nan=1), math.inf),
        # masks: how negative they are says nothing, how much they hide does
        (Stats(4, -5e3, 5e3, -1e4, 0.0, 1e4, zeros=2), Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, neginf=2, zeros=2), 0.0),
        (Stats(4, -5e3, 5e3, -1e4, 0.0, 1e4, zeros=2), Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, neginf=1, zeros=3), 1.0),
        (Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, zeros=4), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), math.inf),
    ],
)
def test_the_error_of_statistics(a, b, error):
    assert error_between(a, b) == pytest.approx(error)


def test_tensors_are_read_one_pair_at_a_time(tmp_path):
    """Two saved runs of any size compare in the memory of two tensors."""
    wide = nn.Sequential(*[nn.Linear(512, 512) for _ in range(12)])
    x = torch.randn(2048, 512)
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        with torch.no_grad():
            fx_debug(wide, x, values="tensors", save=folder)
    a, b = (fxdebug.load(folder) for folder in folders)
    live: list[int] = []
    read: list[weakref.ref[torch.Tensor]] = []
    real = type(a.data).tensor

    def watched(self: Any, value: Any) -> Any:
        tensor = real(self, value)
        read.append(weakref.ref(tensor))
        live.append(sum(reference() is not None for reference in read))
        return tensor

    type(a.data).tensor = watched
    try:
        for value in a.values + b.values:  # equal data is not read at all: make it be
            object.__setattr__(value, "digest", None)
        assert fxdebug.compare(a, b).equal
    finally:
        type(a.data).tensor = real
    assert len(read) >= 24
    assert max(live) == 2
