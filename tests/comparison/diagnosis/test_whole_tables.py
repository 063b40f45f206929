"""Tables of angles are compared as they are applied to data: how each run makes them is its own affair."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare, compare_models, fx_debug


class Turns(nn.Module):
    """The angles are positions times powers of a base: by a quotient, or by a negative power."""

    def __init__(self, base: float, *, by_quotient: bool) -> None:
        super().__init__()
        self.base, self.by_quotient = base, by_quotient
        self.enter, self.leave = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(0, 8, 2).float() / 8
        rates = 1 / self.base**steps if self.by_quotient else self.base ** (-torch.arange(0, 8, 2).float() / 8)
        places = torch.arange(x.shape[1]).float()
        angles = torch.outer(places, rates) if self.by_quotient else places[:, None] * rates[None]
        angles = torch.cat([angles, angles], -1)
        x = self.enter(x)
        one, other = x.chunk(2, -1)
        return self.leave(x * angles.cos() + torch.cat([-other, one], -1) * angles.sin())


def pair(base: float) -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(0)
    a, b = Turns(1e4, by_quotient=True), Turns(base, by_quotient=False)
    b.load_state_dict(a.state_dict())
    return a, b, torch.randn(2, 6, 8)


WAYS = {
    "runs": lambda a, b, x: compare(*(fx_debug(model, x, values="tensors") for model in (a, b))),
    "models": lambda a, b, x: compare_models(a, b, x),
}


@pytest.mark.parametrize("way", WAYS)
def test_another_base_is_told_by_its_number_and_not_by_how_the_powers_are_written(way: str) -> None:
    found = WAYS[way](*pair(5e5)).first
    assert found is not None
    assert (found.kind, found.because) == ("constant", "10000 in a, 500000 in b")


@pytest.mark.parametrize("way", WAYS)
def test_the_same_table_written_otherwise_is_no_finding(way: str) -> None:
    assert WAYS[way](*pair(1e4)).verdict == "equal"


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_of_a_norm_that_was_never_loaded_is_told_as_one_number(way: str) -> None:
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.Linear(8, 4))
    b = nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.Linear(8, 4))
    nn.init.normal_(a[1].weight, 1, 0.3)
    b.load_state_dict({**a.state_dict(), "1.weight": torch.ones(8)})
    found = WAYS[way](a, b, torch.randn(3, 8)).first
    assert found is not None
    assert (found.kind, found.because) == ("weights", "1.weight is 1 throughout, that of a is not")


class Times(nn.Module):
    """An embedding of times, whose rates are powers by ``exp`` or by a power of the base; ``sine``: is it whole?"""

    def __init__(self, *, by_exp: bool, sine: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.by_exp, self.sine, self.leave = by_exp, sine, nn.Linear(16, 4)

    def forward(self, t: Tensor) -> Tensor:
        steps = torch.arange(8).float()
        rates = torch.exp(-math.log(1000.0) * steps / 8) if self.by_exp else 1000.0 ** (-steps / 8)
        phase = t.float()[:, None] * rates[None]
        return self.leave(torch.cat([phase.cos(), phase.sin() if self.sine else phase], -1))


@pytest.mark.parametrize("way", WAYS)
def test_rates_written_as_another_power_are_no_other_number_beside_a_fault(way):
    a, t = Times(by_exp=True), torch.tensor([3, 70])
    with torch.no_grad():
        assert WAYS[way](a, Times(by_exp=False), t).findings == ()
        found = WAYS[way](a, Times(by_exp=False, sine=False), t)
    assert found.first is not None
    assert (found.first.op, found.first.kind) == ("sin", "missing")
    assert found.first.because.startswith("sin of a (")
