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
    assert lines[0].startswith(f"{name} of Sequential") and all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_prints_json_and_csv(name: str, place: Path, capsys: Any) -> None:
    assert main([*COMMANDS[name], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "fxdebug.report/1" and data["analysis"] == name
    assert main([*COMMANDS[name], "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 1 + 4 and rows[0][0] == "call"


@pytest.mark.parametrize("suffix", [".png", ".csv", ".json", ".txt"])
def test_a_report_is_written_to_a_file(suffix: str, place: Path, capsys: Any) -> None:
    assert main(["flops", "run", "-o", f"flops{suffix}"]) == 0
    assert (place / f"flops{suffix}").stat().st_size > 50
    assert f"wrote flops{suffix}" in capsys.readouterr().out


def test_a_picture_that_an_analysis_does_not_have_is_a_clear_error(place: Path, capsys: Any) -> None:
    assert main(["summary", "run", "-o", "summary.png"]) == 2
    assert "there is no picture of summary: use .csv, .json or .txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["profile"], "no model: give FILE.py:function"),
        (["memory", "absent.py:build"], "there is no file absent.py"),
        (["flops", "absent"], "absent"),
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
