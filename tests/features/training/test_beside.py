"""What is done beside forward, backward and step is named, and the loop without it has no warning."""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.features.training.saved.training_file import read_training
from support.loops import cases_of, verdict_on, warnings_of

CASES = cases_of("learn_wide")


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """An example takes as long to read as ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 60

    def __getitem__(self, at: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.ones(4)


@pytest.mark.parametrize(
    ("reading", "between", "told"),
    [
        (0.006, 0.0, r"[89]\d % of a step \(0\.0\d+ s\) waits for the next batch of the DataLoader \(forward \d+ %, "),
        (0.0, 0.012, r"[89]\d % of a step \(0\.0\d+ s\) passes before its forward begins .*, \d % in the DataLoader$"),
    ],
)
def test_a_step_that_waits_for_its_batch_is_told_from_one_that_waits_for_something_else(
    reading: float, between: float, told: str
) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with fxdebug.watch(net, save=None) as watched:
        for x in torch.utils.data.DataLoader(Slow(reading), batch_size=2):
            time.sleep(between)
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (found,) = [one for one in watched.verdict().findings if one.rule == "waits for data"]
    assert re.match(told, found.what), found.what


def test_a_training_without_a_data_loader_has_no_time_in_one(tmp_path: Path) -> None:
    net = nn.Linear(4, 1)
    with fxdebug.watch(net, save=tmp_path):
        net(torch.ones(2, 4)).sum().backward()
        torch.optim.SGD(net.parameters(), lr=0.01).step()
    assert [one.loading for one in read_training(tmp_path).signs] == [None]


@pytest.mark.parametrize(
    ("name", "rule", "steps"),
    [
        ("clips_before_the_backward", "clipped too early", 30),
        ("clips_behind_the_step", "clipped too late", 30),
        ("clips_another_net", "clipped too early", 30),
        ("a_teacher_whose_statistics_stay", "copy stays", 30),
        ("a_target_net_that_stays", "copy stays", 110),
        ("the_noisy_input_for_the_target", "targets are inputs", 30),
        ("a_decoder_that_is_given_its_target", "targets are inputs", 30),
        ("codes_that_are_not_shifted", "targets are inputs", 12),
        ("padding_in_the_loss", "padding counts", 30),
        ("the_right_answer_is_masked", "answer masked", 30),
        ("actions_that_are_allowed_are_masked", "answer masked", 30),
        ("vectors_normalised_over_the_batch", "norm misplaced", 30),
        ("states_that_are_viewed", "viewed for transposed", 30),
        ("the_first_state_for_the_last", "zero gradients", 60),
        ("a_module_that_is_told_to_freeze", "freezes nothing", 20),
        ("a_slip_of_the_pen", "freezes nothing", 20),
        ("a_schedule_of_an_optimizer_of_before", "schedule of others", 20),
        ("a_rate_that_is_set_beside", "rate set beside", 20),
        ("an_adapter_times_nothing", "zero gradients", 60),
        ("a_code_that_is_rounded", "zero gradients", 60),
        ("a_term_of_a_frozen_encoder_under_no_grad", "idle term", 40),
    ],
)
def test_the_cause_is_named_and_the_loop_without_it_has_no_warning(name: str, rule: str, steps: int) -> None:
    wrong, right = verdict_on(CASES[name], True, steps), verdict_on(CASES[name], False, steps)

    assert (wrong.rule, warnings_of(right)) == (rule, [])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.rules])
def test_neighbours_of_these_mistakes_have_no_warning(name: str) -> None:
    assert warnings_of(verdict_on(CASES[name], False, 60)) == []


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
