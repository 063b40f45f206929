"""What is done beside forward, backward and step is named, and the loop without it has no warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.features.training.beside.ends import Ends
from fxdebug.features.training.saved.training_file import read_training
from support.loops import cases_of

CASES = cases_of("learn_wide")


def test_a_copy_is_as_it_was_when_the_watch_ends_and_numbers_are_the_same() -> None:
    def trained(is_watched: bool) -> tuple[list[torch.Tensor], list[str]]:
        torch.manual_seed(0)
        net, target = nn.Linear(4, 4), nn.Linear(4, 4)
        both = nn.ModuleDict(
            {"net": nn.Sequential(net, nn.Linear(4, 1)), "old": nn.Sequential(target, nn.Linear(4, 1))}
        )
        optimizer = torch.optim.SGD(both["net"].parameters(), 0.1)
        with fxdebug.watch(both, save=None) if is_watched else warnings.catch_warnings():
            for _ in range(8):
                x = torch.randn(16, 4)
                with torch.no_grad():
                    told = both["old"](x)
                loss = (both["net"](x) - 0.9 * told).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(both.parameters(), 0.1)
                optimizer.step()
        return [p.detach().clone() for p in both.parameters()], sorted(vars(both["old"]))

    (plain, names), (watched, after) = trained(False), trained(True)

    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert names == after


def test_a_module_in_memory_that_was_never_made_to_the_end_is_passed_over(tmp_path: Path) -> None:
    half_made = nn.Sequential.__new__(nn.Sequential)  # what a copy leaves that failed
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with fxdebug.watch(net, save=tmp_path):
        for _ in range(8):
            x = torch.randn(16, 4)
            nn.functional.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert "_modules" not in vars(half_made) and read_training(tmp_path).gaps == ()


@pytest.mark.parametrize("is_ended", [False, True])
def test_one_reward_for_all_and_no_end_among_them_is_told(is_ended: bool) -> None:
    draw, ends = torch.Generator().manual_seed(0), Ends()
    for _ in range(8):
        values = torch.randn(64, 2, generator=draw)
        follows = values.amax(1) * (torch.rand(64, generator=draw) > 0.05) if is_ended else values.amax(1)
        ends.note(1 + 0.9 * follows, [values])

    assert [(one.name, round(one.numbers[0], 3)) for one in ends.signs()] == ([] if is_ended else [("no end", 0.9)])
