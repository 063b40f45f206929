"""The data that two values are measured by: statistics, samples, or the tensors, one pair at a time."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.comparison.tolerance import error_between
from fxdebug.data.values import sample_positions
from support.blocks import changed, run


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
