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


class Bias(nn.Module):
    """Makes a table in its first call, and takes it in the next ones; ``way`` says where it keeps it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.tables: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(x)[: x.shape[0]]

    def table(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "a dict":
            return self.from_dict(x)
        if not hasattr(self, "bias"):
            made = self.made(x)
            if self.way == "a buffer":
                self.register_buffer("bias", made, persistent=False)
            else:
                self.bias = made
        return self.bias

    def from_dict(self, x: torch.Tensor) -> torch.Tensor:
        if "bias" not in self.tables:
            self.tables["bias"] = self.made(x)
        return self.tables["bias"]

    def made(self, x: torch.Tensor) -> torch.Tensor:
        return torch.arange(16, device=x.device)[:, None] * 0.5


class Biased(Layer):
    def __init__(self, bias: Bias) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x) + self.bias(x)


@pytest.mark.parametrize("way", ["a buffer", "an attribute", "a dict"])
def test_later_calls_that_take_what_the_first_one_kept_run_again(way: str) -> None:
    def make() -> tuple[nn.Module, torch.Tensor]:
        bias = Bias(way)  # one for both layers, as positional biases are
        return nn.Sequential(Biased(bias), Biased(bias)).eval(), torch.randn(3, 8)

    assert watched(make).not_verified() == {}
    model, x = make()
    with torch.no_grad():
        trace = fxdebug.fx_debug(model, x)
        for call in (trace.find("1")[0], trace.find("0.bias")[1]):
            module = model.get_submodule("1" if call.path == "1" else "0.bias")
            for each in (torch.randn(3, 8), torch.randn(5, 8)):
                assert torch.equal(call.fx(each), module(each))


class Remembers(Layer):
    """Takes what its caller put into it: on other inputs that is out of date."""

    memory: list[torch.Tensor]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x) + self.memory[0]


class Reminds(Layer):
    def setup(self) -> None:
        self.inner = nn.Sequential(Remembers())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner[0].memory = [x * 2]
        return self.inner(x)  # type: ignore[no-any-return]


def test_what_the_caller_put_there_is_still_refused() -> None:
    trace = fxdebug.fx_debug(Reminds().eval(), torch.randn(3, 8))
    with pytest.raises(fxdebug.UsageError, match="takes a tensor that is no argument of it"):
        trace.find("inner")[0].fx(torch.randn(3, 8))
