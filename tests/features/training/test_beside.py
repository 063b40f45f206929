"""What is done beside forward, backward and step is named, and the loop without it has no warning."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.features.shared.records.learning import StepSigns
from fxdebug.features.shared.records.training import StepRecord, TrainingRecord
from fxdebug.features.training.beside.ends import Ends
from fxdebug.features.training.saved.training_file import read_training
from fxdebug.features.training.verdict.judge import judge


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """An example takes as long to read as ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 60

    def __getitem__(self, at: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.ones(4)


def test_the_time_in_a_data_loader_is_that_of_the_batches_of_a_step(tmp_path: Path) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with fxdebug.watch(net, save=tmp_path):
        for x in torch.utils.data.DataLoader(Slow(0.002), batch_size=4):
            net(x).square().mean().backward()
            optimizer.step()
    signs = read_training(tmp_path).signs
    assert len(signs) == 15 and all(one.loading is not None and 0.008 <= one.loading <= one.before for one in signs)


SHARES = "(forward 10 %, backward 8 %, optimizer 2 %)"


@pytest.mark.parametrize(
    ("loading", "told"),
    [
        (0.07, f"70 % of a step (0.1 s) waits for the next batch of the DataLoader {SHARES}"),
        (0.03, f"80 % of a step (0.1 s) passes before its forward begins {SHARES}, 30 % in the DataLoader"),
        (None, f"80 % of a step (0.1 s) passes before its forward begins {SHARES}"),
    ],
)
def test_a_step_that_waits_for_its_batch_is_told_from_one_that_waits_for_something_else(
    loading: float | None, told: str
) -> None:
    signs = [
        StepSigns(at, 4, "", before=0.08, forward=0.01, backward=0.008, optimizer=0.002, loading=loading)
        for at in range(30)
    ]
    steps = [StepRecord(at, 1.0, 1.0, 0.1) for at in range(30)]
    verdict = judge(TrainingRecord("Net", 50, steps=tuple(steps), signs=tuple(signs)))
    assert [one.what for one in verdict.findings if one.rule == "waits for data"] == [told]


def test_a_training_without_a_data_loader_has_no_time_in_one(tmp_path: Path) -> None:
    net = nn.Linear(4, 1)
    with fxdebug.watch(net, save=tmp_path):
        net(torch.ones(2, 4)).sum().backward()
        torch.optim.SGD(net.parameters(), lr=0.01).step()
    assert [one.loading for one in read_training(tmp_path).signs] == [None]


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
