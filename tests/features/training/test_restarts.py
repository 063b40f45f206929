"""A training that goes on with an earlier one of its folder: one axis of steps, a line at the restart."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import fxdebug
from fxdebug.api import page_of_training
from fxdebug.features.serve.live_page import events
from fxdebug.features.shared.records.learning import LearningFacts, Sign
from fxdebug.features.shared.records.training import StepRecord
from fxdebug.features.training.saved.restarts import Restart, chart_of, restart_of
from fxdebug.features.training.saved.training_file import TrainingFile, read_training
from support.page_data import data_in


def part(folder: Path, net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, save=folder):
        for _ in range(steps):
            net(torch.ones(4, 2)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def restart(folder: Path, make: Callable[[nn.Module], torch.optim.Optimizer], loads: bool = True) -> Restart | None:
    """Train 4 steps, keep what 3 of them left, go on from there for 5 steps; return where the training goes on."""
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    optimizer = make(net)
    part(folder, net, optimizer, 3)
    kept = optimizer.state_dict()
    again = make(net)
    if loads:
        again.load_state_dict(kept)
    part(folder, net, again, 5)
    return restart_of(read_training(folder), folder)


def test_a_restart_goes_on_with_the_steps_that_the_optimizer_counts(tmp_path: Path) -> None:
    found = restart(tmp_path, lambda net: torch.optim.Adam(net.parameters(), 0.1))
    assert found is not None and (found.step, found.is_counted) == (3, True)
    assert [(one.name, [step for step, _ in one.points]) for one in found.parts] == [("earlier-1", [0, 1, 2])]
    assert found.text == "in front: earlier-1; restarted at step 3"
    chart = chart_of(read_training(tmp_path), found)
    assert chart is not None and chart.steps == tuple(range(8)) and chart.marks == ((3, "restarted"),)
    first = data_in(page_of_training(tmp_path))["runs"][0]["charts"][0]
    assert first["title"] == "loss since the restart" and first["marks"] == [[3, "restarted"]]
    assert first["names"] == ["loss since the restart", "earlier-1"]


def test_a_restart_whose_optimizer_counts_no_steps_is_drawn_behind_and_says_so(tmp_path: Path) -> None:
    found = restart(tmp_path, lambda net: torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
    assert found is not None and (found.step, found.is_counted) == (3, False)
    assert "at which step is not known: drawn one after the other" in found.text


def test_a_training_with_a_fresh_optimizer_goes_on_with_none(tmp_path: Path) -> None:
    assert restart(tmp_path, lambda net: torch.optim.Adam(net.parameters(), 0.1), loads=False) is None
    assert data_in(page_of_training(tmp_path))["runs"][0]["charts"][0]["title"] == "loss"


def test_several_restarts_are_one_curve_and_another_model_begins_anew(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    for steps in (3, 2, 4):
        part(tmp_path, net, optimizer, steps)
    found = restart_of(read_training(tmp_path), tmp_path)
    assert found is not None and found.step == 5
    assert [(one.name, one.points[0][0]) for one in found.parts] == [("earlier-1", 0), ("earlier-2", 3)]
    other = nn.Sequential(nn.Linear(2, 1))
    part(tmp_path, other, torch.optim.Adam(other.parameters(), 0.1), 3)
    assert restart_of(read_training(tmp_path), tmp_path) is None


def test_the_live_page_is_told_of_the_curve_in_front(tmp_path: Path) -> None:
    restart(tmp_path, lambda net: torch.optim.Adam(net.parameters(), 0.1))
    told = [next(stream).decode() for stream in [events(tmp_path, 0, lambda: 0.0, lambda seconds: None)] for _ in "123"]
    kinds = [one.partition("event: ")[2].partition("\n")[0] for one in told]
    assert kinds == ["steps", "before", "state"]
    before = json.loads(told[1].partition("data: ")[2])
    assert before["step"] == 3 and before["text"] == "in front: earlier-1; restarted at step 3"
    assert [step for step, _ in before["parts"][0]] == [0, 1, 2]


def test_of_long_trainings_the_same_steps_are_drawn_where_they_overlap(tmp_path: Path) -> None:
    """The checkpoint is of step 1500, and the training before it went on until 2000."""
    for folder, count, begin in ((tmp_path / "earlier-1", 2000, 0), (tmp_path, 1000, 1500)):
        file = TrainingFile(folder, "Net", 50, None)
        for number in range(count):
            file.add(StepRecord(number, 1.0, 1.0, 0.1))
        if begin:
            file.add(LearningFacts(count, beside=(Sign("goes on", (), (float(begin),)),)))
        file.close()
    found = restart_of(read_training(tmp_path), tmp_path)
    assert found is not None and found.step == 1500
    chart = chart_of(read_training(tmp_path), found)
    assert chart is not None and len(chart.steps) <= 1000
    for name, (first, last) in {"earlier-1": (0, 1998), "loss since the restart": (1500, 2499)}.items():
        known = [step for step, loss in zip(chart.steps, chart.lines[name]) if loss == loss]
        assert known == [step for step in chart.steps if first <= step <= last]
