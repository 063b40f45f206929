"""``fxdebug gradients | weights | watch``, and ``check`` of a watched training."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.apps.cli.main import main
from fxdebug.features.shared.records.training import Incident, StepRecord
from fxdebug.features.training.saved.training_file import TrainingFile

MODEL = """
import torch
def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), torch.randn(4, 8)
"""


def train(folder: Path, poisoned: int | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with warnings.catch_warnings(), fxdebug.watch(model, every=5, save=folder):
        warnings.simplefilter("ignore")
        for step in range(12):
            x = torch.randn(4, 8)
            if step == poisoned:
                x[1, 2] = math.nan
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("command", [["gradients", "model.py:build"], ["weights", "model.py:build"], ["watch", "run"]])
def test_each_command_prints_its_report_in_80_columns(
    command: list[str], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    train(tmp_path / "run")
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    if command[0] == "watch":  # its verdict comes first
        assert lines.pop(0) == "cannot tell yet (12 of 20 steps)"
    assert lines[0].startswith(f"{command[0]} of Sequential") and all(len(line) <= 80 for line in lines)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["analysis"] == command[0]
    assert main([*command, "-o", "picture.png"]) == 0 and Path("picture.png").stat().st_size > 1000


def test_check_of_a_training_prints_its_incidents_and_has_the_status_of_check(tmp_path: Path, capsys: Any) -> None:
    train(tmp_path / "good")
    assert main(["check", str(tmp_path / "good")]) == 0
    assert capsys.readouterr().out.startswith(
        "cannot tell yet (12 of 20 steps)\n\nNothing wrong.\nChecked: training.\n"
    )
    train(tmp_path / "bad", poisoned=7)
    assert main(["check", str(tmp_path / "bad")]) == 1
    text = capsys.readouterr().out
    assert "step 7: the input 'input' has 1 NaN of 32; its inputs: 4×8 float32." in " ".join(text.split())
    assert main(["check", str(tmp_path / "bad"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "loss not finite"
    assert main(["check", str(tmp_path / "bad"), "--csv"]) == 1
    assert capsys.readouterr().out.startswith("severity,kind,node")
    assert main(["check", str(tmp_path / "bad" / "step-7")]) == 1


def test_of_several_ranks_the_guilty_one_is_named_first_and_one_can_be_chosen(tmp_path: Path, capsys: Any) -> None:
    for rank, op in ((0, ""), (1, "log")):
        file = TrainingFile(tmp_path, "Net", 50, rank)
        file.add(StepRecord(0, 1.0, 1.0, 0.1))
        file.add(Incident(5, "gradient", 1.0, math.nan, f"told by {rank}", op=op, rank=rank))
        file.close()
    assert main(["check", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert text.index("rank 1: step 5: told by 1") < text.index("rank 0: step 5: told by 0")
    assert main(["watch", str(tmp_path), "--rank", "1"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("rank 1: step 5: told by 1.\nwatch of Net  every 50 · rank 1") and "rank 0" not in text


def test_a_folder_without_a_training_is_an_error_in_one_line(tmp_path: Path, capsys: Any) -> None:
    assert main(["watch", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("fxdebug: ")
