"""Histograms are numpy's, and distributions are told apart by a test that has enough elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fxdebug.stats.histogram import distribution_of, histogram


def spread(count: int) -> Tensor:
    """Return as many probabilities, evenly between 0 and 1."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


@pytest.mark.parametrize("count", [100, 999, 20_000])
def test_uniform_and_normal_elements_are_told_from_a_hundred_on(count: int) -> None:
    assert distribution_of(spread(count)) == "uniform"
    assert distribution_of(torch.special.ndtri(spread(count)) * 3 + 1) == "normal"
    assert distribution_of(spread(count)[torch.randperm(count)]) == "uniform"


def test_of_fewer_than_a_hundred_elements_nothing_is_told() -> None:
    assert distribution_of(spread(99)) == distribution_of(torch.special.ndtri(spread(99))) == "other"


def test_other_distributions_are_neither() -> None:
    assert distribution_of(-spread(1000).log()) == "other"  # exponential
    assert distribution_of(torch.cat([spread(500), spread(500) + 9])) == "other"


def test_constant_empty_and_not_finite_elements() -> None:
    assert distribution_of(torch.full((3,), 7.0)) == "constant"
    assert distribution_of(torch.empty(0)) == "other"
    assert (
        distribution_of(torch.tensor([1.0, float("nan")])) == distribution_of(torch.tensor([1.0, torch.inf])) == "other"
    )


def test_edges_and_counts_are_those_of_numpy_and_what_is_not_finite_is_counted_apart() -> None:
    torch.manual_seed(0)
    tensor = torch.randn(300)
    tensor[0], tensor[1], tensor[2] = float("nan"), torch.inf, -torch.inf
    found = histogram(tensor, bins=7)
    counts, edges = np.histogram(tensor[3:].double().numpy(), 7)
    assert found.counts == tuple(counts) and found.edges == tuple(edges)
    assert (found.nan, found.inf) == (1, 2)
