"""Bodies that keep what they compute on their first run: they are traced with their attributes as they were."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from support.watched import Layer, watched


class CachesAnAttribute(Layer):
    """Keeps anchors until the size changes, as detectors do."""

    shape: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.shape != x.shape:
            self.anchors, self.halves = (each + 0.5 for each in (x.new_ones(8), x.new_zeros(8)))
            self.shape = x.shape
        return self.l(x) * self.anchors - self.halves


class CachesABuffer(Layer):
    """Keeps a bias that is ``None`` at first, as positional biases are."""

    def setup(self) -> None:
        self.register_buffer("bias", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            self.bias = torch.arange(8, device=x.device) * 0.1
        return self.l(x) + self.bias


class CountsItsRuns(Layer):
    def setup(self) -> None:
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return self.l(x) * self.runs


@functools.lru_cache
def steps(count: int) -> tuple[float, ...]:
    return tuple([step / count for step in range(count)])


class CachesBySize(Layer):
    """Keeps an attribute, and asks a function whose results are cached by size."""

    weights: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weights is None:
            self.weights = torch.arange(8) * 0.5
        return self.l(x) * self.weights + steps(x.shape[0])[-1]


MODELS = (CachesAnAttribute, CachesABuffer, CountsItsRuns, CachesBySize)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_the_first_run_is_verified(kind: type[nn.Module]) -> None:
    assert watched(lambda: (kind().eval(), torch.randn(3, 8))).not_verified() == {}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_its_graph_says_that_the_body_does_more(kind: type[nn.Module]) -> None:
    with torch.no_grad():
        graph = fxdebug.fx_debug(kind().eval(), torch.randn(3, 8)).root.fx
        with pytest.raises(fxdebug.UsageError, match="its Python changes attributes"):
            graph(torch.randn(3, 8))


def test_a_later_run_that_takes_what_was_kept_is_verified_too() -> None:
    model, x = CachesAnAttribute().eval(), torch.randn(3, 8)
    with torch.no_grad():
        model(x)
        trace = fxdebug.fx_debug(model, x)
        assert trace.root.status == "verified"
        assert torch.equal(trace.root.fx(x), model(x))


def test_the_attributes_are_those_of_the_run_afterwards() -> None:
    model, x = CachesAnAttribute().eval(), torch.randn(3, 8)
    with torch.no_grad():
        trace = fxdebug.fx_debug(model, x)
    anchors = model.anchors
    assert trace.root.status == "verified"
    assert model.anchors is anchors and type(anchors) is torch.Tensor and model.shape == x.shape
