"""The file of a watched training, read back: damage is told, nothing outside of its folder is read."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.errors import LoadError
from fxdebug.features.mcp import answers
from fxdebug.features.training.saved.training_file import read_training


def watched(folder: Path, name: str = "0") -> list[str]:
    model = nn.Sequential()
    model.add_module(name, nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, optimizer, every=2, save=folder):
        for _ in range(4):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return (folder / "training.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (10**400, "step.loss|line 2.* is an integer of 1329 bits, not a number"),
        (-(10**400), "is an integer of 1329 bits"),
        ("1e5", "is '1e5', not a number"),
        (True, "is true, not a number"),
        ([1.0], "is a list of 1, not a number"),
    ],
)
def test_what_is_no_number_is_told_with_its_line(number: Any, told: str, tmp_path: Path) -> None:
    lines = watched(tmp_path)
    place = next(i for i, line in enumerate(lines) if line.startswith('{"step"'))
    content = json.loads(lines[place])
    content["step"][1] = number
    lines[place] = json.dumps(content)
    (tmp_path / "training.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(LoadError, match=told):
        read_training(tmp_path)


def test_a_folder_without_a_training_says_where_some_lie(tmp_path: Path) -> None:
    nowhere = f"{tmp_path / 'none'} is no folder: give the one that fxdebug.watch(…, save=…) writes"
    with pytest.raises(LoadError, match=f"^{re.escape(nowhere)}$"):
        read_training(tmp_path / "none")
    for name in "abcde":
        watched(tmp_path / name)
    named = ", ".join(str(tmp_path / name) for name in "abc")
    below = f"{tmp_path} holds no training.jsonl: trainings lie below it: {named} and 2 more"
    with pytest.raises(LoadError, match=f"^{re.escape(below)}$"):
        read_training(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_out_of_the_folder_is_followed_by_nobody(tmp_path: Path) -> None:
    watched(tmp_path / "elsewhere")
    (tmp_path / "served" / "linked").mkdir(parents=True)
    (tmp_path / "served" / "linked" / "training.jsonl").symlink_to(tmp_path / "elsewhere" / "training.jsonl")
    linked = tmp_path / "served" / "linked"
    for ask in (
        lambda: answers.training(answers.Runs(tmp_path / "served"), "linked"),
        lambda: fxdebug.check(linked, config=False),
        lambda: fxdebug.api.watched_training(linked),
        lambda: fxdebug.api.export_training(linked, tmp_path / "page.html"),
        lambda: fxdebug.api.page_of_training(linked),
    ):
        with pytest.raises(LoadError, match="is a link out of its folder"):
            ask()


def test_half_a_pair_in_a_name_is_written_and_read(tmp_path: Path) -> None:
    watched(tmp_path, "half\ud800")
    (step, _) = read_training(tmp_path).watched
    assert [one.name for one in step.parameters] == ["half\ud800.weight", "half\ud800.bias"]
