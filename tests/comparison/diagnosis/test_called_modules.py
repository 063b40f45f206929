"""A module that is called in the place of another one is told as such, and weights that were exchanged as weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare_models


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.up(x).relu())
        return out


class Net(nn.Module):
    def __init__(self, second: str = "two") -> None:
        super().__init__()
        self.one, self.two, self.second = Block(), Block(), second

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.one(x)
        out: Tensor = x + getattr(self, self.second)(x)
        return out


def pair(second: str, zero_biases: bool) -> tuple[Net, Net]:
    torch.manual_seed(0)
    a, b = Net(), Net(second)
    if zero_biases:
        for name, weight in a.named_parameters():
            weight.data.mul_("bias" not in name)
    b.load_state_dict(a.state_dict())
    return a, b


@pytest.mark.parametrize("zero_biases", [False, True])
def test_a_module_that_is_called_twice_in_the_place_of_another_is_told(zero_biases: bool) -> None:
    found = compare_models(*pair("one", zero_biases), torch.randn(4, 8)).first
    assert found is not None
    assert (found.kind, found.path, found.because) == ("wiring", "", "two is called in a, one in b")


def test_weights_that_were_exchanged_are_told_as_weights() -> None:
    a, b = pair("two", False)
    with torch.no_grad():
        b.one.up.weight.copy_(a.two.up.weight)
        b.two.up.weight.copy_(a.one.up.weight)
    found = compare_models(a, b, torch.randn(4, 8)).first
    assert found is not None
    assert (found.kind, found.because) == (
        "weights", "one.up.weight is two.up.weight of a, not one.up.weight: exchanged with two.up.weight",
    )  # fmt: skip
