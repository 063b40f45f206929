"""What arrives at log-probabilities, what meets a mean too late, and what a model answers when it is asked again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from support.loops import cases_of, verdict_on

CASES = cases_of("learn_arrivals")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a_silent_voice", "the logarithm of 0, for 1 of 16 numbers"),
        ("boxes_that_meet_no_anchor", "a mean of nothing"),
        ("a_distance_the_wrong_way_round", "kl_div of logarithms where it takes probabilities"),
    ],
)
def test_a_loss_that_is_not_finite_names_the_operation(name: str, told: str) -> None:
    assert told in str(verdict_on(CASES[name], True, 30))


def test_zero_gradients_name_the_function_that_returns_only_zeros() -> None:
    assert "a relu of what 4 returns gives only zeros" in str(verdict_on(CASES["a_density_that_dies"], True, 40))


class Counted(nn.Module):
    """A net with all that a forward may change: statistics, random numbers, a count of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3)
        self.last, self.calls = nn.Linear(16, 3), 0

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        self.calls += 1
        return self.last(self.drop(self.norm(self.first(x)).relu()))  # type: ignore[no-any-return]


def trained(net: Counted, *, watches: bool) -> tuple[list[float], Tensor, int]:
    """Train; return the losses, all weights and statistics with the next random number, and the calls."""
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.1), []
    watched = fxdebug.watch(net, optimizer, save=None) if watches else None
    if watched is not None:
        watched.__enter__()
    for _ in range(30):
        x = torch.randn(16, 6)
        loss = nn.functional.cross_entropy(net(x, torch.randn(16, 2)), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if watched is not None:
        watched.__exit__(None, None, None)
        told = [one for one in watched.verdict().findings if one.rule == "input ignored"]
        assert ["other" in one.what for one in told] == [True]
    held = [one.double().reshape(-1) for one in net.state_dict().values()]
    return losses, torch.cat([*held, torch.rand(1).double()]), net.calls


def test_a_model_that_was_asked_again_is_as_before_to_the_last_bit() -> None:
    torch.manual_seed(3)
    with_it = trained(Counted(), watches=True)
    torch.manual_seed(3)
    without = trained(Counted(), watches=False)

    assert with_it[0] == without[0] and torch.equal(with_it[1], without[1]) and with_it[2] == without[2]


def test_a_model_that_somebody_listens_to_is_not_asked_again() -> None:
    torch.manual_seed(0)
    net, heard = Counted(), []
    net.first.register_forward_hook(lambda *_: heard.append(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with fxdebug.watch(net, optimizer, save=None):
        for _ in range(25):
            nn.functional.mse_loss(net(torch.randn(16, 6), torch.randn(16, 2)), torch.zeros(16, 3)).backward()
            optimizer.step()

    assert len(heard) == 25
