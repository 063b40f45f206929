"""A harmless difference never stands before one that changes what is returned."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison


class Model(nn.Module):
    """Two norms, the first with another epsilon in a port, and an activation behind them."""

    def __init__(self, eps: float, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16, eps=eps), nn.Linear(16, 64), nn.Linear(64, 16)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down(self.activation(self.up(self.norm(x))))
        return down


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def tanh_gelu(x: Tensor) -> Tensor:
    return nn.functional.gelu(x, approximate="tanh")


X = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(0)) * 2
WAYS: dict[str, Callable[[nn.Module, nn.Module], Comparison]] = {
    "statistics": lambda a, b: compare(fx_debug(a, X), fx_debug(b, X)),
    "tensors": lambda a, b: compare(*(fx_debug(model, X, values="tensors") for model in (a, b))),
    "models": lambda a, b: compare_models(a, b, X, budget=0),
}


def pair(eps: float, one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]) -> tuple[nn.Module, nn.Module]:
    a, b = Model(1e-5, one), Model(eps, other)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in a.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    b.load_state_dict(a.state_dict())
    return a.eval(), b.eval()


@pytest.mark.parametrize("way", WAYS)
def test_another_activation_stands_before_another_epsilon_though_it_comes_later(way):
    with torch.no_grad():
        found = WAYS[way](*pair(1e-7, quick_gelu, nn.functional.gelu))
    assert [(row.op, row.kind) for row in found.findings] == [("gelu", "values"), ("layer_norm", "constant")]


@pytest.mark.parametrize("way", WAYS)
def test_an_epsilon_alone_is_the_first_finding_and_an_activation_behind_it_is_none(way):
    with torch.no_grad():
        found = WAYS[way](*pair(1e-3, quick_gelu, quick_gelu))
    assert [(row.op, row.kind) for row in found.findings] == [("layer_norm", "constant")]


@pytest.mark.parametrize("way", WAYS)
def test_settings_of_one_size_stay_in_execution_order(way):
    with torch.no_grad():
        found = WAYS[way](*pair(1e-4, tanh_gelu, nn.functional.gelu))
    assert found.findings[0].op == "layer_norm"
