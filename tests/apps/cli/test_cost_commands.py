"""``fxdebug flops | summary | profile | memory``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.apps.cli.main import main

MODEL = """
import torch
def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    return model, torch.randn(32, 64)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8))
    with torch.no_grad():
        fxdebug.fx_debug(model, torch.randn(32, 64), save=tmp_path / "run")
    return tmp_path


COMMANDS = {
    "flops": ["flops", "run"],
    "summary": ["summary", "run"],
    "profile": ["profile", "model.py:build", "--repeats", "2"],
    "memory": ["memory", "model.py:build", "--backward"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_prints_its_report_in_80_columns(name: str, place: Path, capsys: Any) -> None:
    assert main(COMMANDS[name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{name} of Sequential") for line in lines[:3])  # the answer stands before it
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_prints_json_and_csv(name: str, place: Path, capsys: Any) -> None:
    assert main([*COMMANDS[name], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "fxdebug.report/1" and data["analysis"] == name
    assert main([*COMMANDS[name], "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 1 + 4 and rows[0][0] == "call"


@pytest.mark.parametrize("suffix", [".png", ".csv", ".json", ".txt", ".html"])
def test_a_report_is_written_to_a_file(suffix: str, place: Path, capsys: Any) -> None:
    assert main(["flops", "run", "-o", f"flops{suffix}"]) == 0
    assert (place / f"flops{suffix}").stat().st_size > 50
    assert f"wrote flops{suffix}" in capsys.readouterr().out


def test_a_picture_that_an_analysis_does_not_have_is_a_clear_error(place: Path) -> None:
    with pytest.raises(fxdebug.UsageError, match=r"there is no picture of check: use \.csv, \.json, \.html or \.txt"):
        fxdebug.check(place / "run").plot(place / "check.png")


@pytest.mark.parametrize("name", ["flops", "summary"])
def test_a_model_in_a_file_is_run_once(name: str, place: Path, capsys: Any) -> None:
    assert main([name, "run", "--csv"]) == 0
    of_run = capsys.readouterr().out
    assert main([name, "model.py:build", "--csv", "-o", f"{name}.svg"]) == 0
    assert capsys.readouterr().out == of_run
    assert (place / f"{name}.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["profile"], "no model: give FILE.py:function"),
        (["memory", "absent.py:build"], "there is no file absent.py"),
        (["flops", "absent"], "absent"),
        (["flops"], "nothing to read: give the folder of a run, FILE.py:function, or --hf"),
        (["summary", "absent.py:build"], "there is no file absent.py"),
        (["summary", "run", "--hf", "model"], "give either the run run or --hf model, not both"),
        (["flops", "model.py:build", "--rank", "0"], "--rank chooses one of the ranks of a saved run"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_line(arguments: list[str], told: str, place: Path, capsys: Any) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_findings_are_exit_status_1(place: Path, capsys: Any) -> None:
    (place / "leak.py").write_text(
        "import torch\nkept = []\nclass Keeps(torch.nn.Module):\n"
        "    def forward(self, x):\n        kept.append(x * 2)\n        return x\n"
        "def build():\n    return Keeps(), torch.ones(64)\n"
    )
    assert main(["memory", "leak.py:build", "--steps", "4"]) == 1
    assert "leak.kept (a list of 4) refers to them" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("read", [fxdebug.flops, fxdebug.summary])
def test_reports_of_a_run_need_no_model(read: Callable[[Path], Any], place: Path) -> None:
    assert len(read(place / "run").rows) == 4


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_compares_with_an_earlier_report(name: str, place: Path, capsys: Any) -> None:
    assert main([*COMMANDS[name], "-o", "before.json"]) == 0
    capsys.readouterr()
    assert main([*COMMANDS[name], "--against", "before.json", "--json"]) in (0, 1)
    data = json.loads(capsys.readouterr().out)
    assert data["analysis"] == f"change of {name}"
    if name != "profile":
        assert data["rows"] == [] and main([*COMMANDS[name], "--against", "before.json"]) == 0


def test_a_file_that_is_no_report_is_one_line_and_status_2(place: Path, capsys: Any) -> None:
    assert main(["flops", "run", "--against", "model.py"]) == 2
    assert capsys.readouterr().err.startswith("fxdebug: model.py is no report that can be read")


def test_memory_estimates_another_batch_and_dtype(place: Path, capsys: Any) -> None:
    assert main(["memory", "model.py:build", "--batch", "64", "--dtype", "bfloat16"]) == 0
    text = capsys.readouterr().out
    assert "estimate for batch 64, bfloat16" in text and "note: estimate: checked in a run with batch 48" in text
    assert main(["memory", "model.py:build", "--dtype", "wide"]) == 2
    assert "--dtype wide: give the name of a dtype of torch" in capsys.readouterr().err


def test_what_was_measured_until_the_model_raised_is_printed(place: Path, capsys: Any) -> None:
    Path("bad.py").write_text(
        "import torch\ndef build():\n    layers = [torch.nn.Linear(4, 4), torch.nn.Linear(5, 4)]\n"
        "    return torch.nn.Sequential(*layers), torch.ones(1, 4)\n"
    )
    for command in ("profile", "memory"):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            main([command, "bad.py:build"])
        text = capsys.readouterr().out
        assert f"\n{command} of Sequential" in f"\n{text}" and "note: the model raised" in text
