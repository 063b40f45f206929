"""Batch norms that are folded into the layer before, and results that are returned in other places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from support.compared import WAYS, compared


class Normed(nn.Module):
    """Products of several kinds with batch norms behind them, or with these folded in."""

    def __init__(self, folded: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 1, bias=False)
        self.norms = nn.ModuleList(nn.Identity() if folded else nn.BatchNorm2d(6) for _ in range(2))
        if folded:
            self.second = nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.norms[0](self.first(x)).relu()
        return self.head(self.norms[1](self.second(x)).relu().mean((2, 3)))


def folded() -> tuple[Any, Any]:
    a: Any = Normed(False).eval()
    b: Any = Normed(True).eval()
    with torch.no_grad():
        b.head.load_state_dict(a.head.state_dict())
        for norm, one, other in zip(a.norms, (a.first, a.second), (b.first, b.second)):
            for weight in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                weight.uniform_(0.5, 2.0)
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            other.weight.copy_(one.weight * scale[:, None, None, None])
            bias = 0.0 if one.bias is None else one.bias
            other.bias.copy_(norm.bias + (bias - norm.running_mean) * scale)
    return a, b


IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("turned", [False, True])
def test_batch_norms_that_are_folded_into_the_weights_of_one_side_are_equal(turned, way):
    a, b = folded()
    found = compared(*((b, a) if turned else (a, b)), IMAGES, way)
    assert (found.findings, found.verdict) == ((), "equal")


def test_batch_norms_in_training_mode_are_told_where_the_other_side_has_them_folded_in() -> None:
    a, b = folded()
    found = compared(a.train(), b, IMAGES, "tensors")
    assert found.first is not None
    assert found.first.because == (
        "a is in training mode: its batch norms take the statistics of this batch, where weights that they are folded "
        "into have the running ones (a.eval()); first.weight differs from that of a, as one does that norms.0 is "
        "folded into"
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["first", "second"])
def test_a_batch_norm_that_is_folded_in_wrongly_is_named(name, way):
    a, b = folded()
    with torch.no_grad():
        getattr(b, name).bias[2] += 0.5
    first = compared(a, b, IMAGES, way).first
    assert first is not None
    assert (first.path, first.op) == (name, "conv2d")


class Both(nn.Module):
    def __init__(self, exchanged: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.exchanged, self.layer, self.head = exchanged, nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.layer(x)
        result = self.head(hidden), hidden
        return result[::-1] if self.exchanged else result


@pytest.mark.parametrize("way", WAYS)
def test_results_that_a_model_returns_in_other_places_are_a_finding(way):
    found = compared(Both(), Both(exchanged=True), torch.ones(2, 8), way)
    assert found.first is not None
    assert (found.verdict, found.first.path, found.first.kind) == ("different", "", "wiring")
    assert found.first.because == "what is returned as [1] in a is returned as [0] in b"
    assert compared(Both(), Both(), torch.ones(2, 8), way).equal
