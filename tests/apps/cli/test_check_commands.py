"""``fxdebug check`` and ``fxdebug rules``: what they take, their exit status, and their forms."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fxdebug import fx_debug
from fxdebug.apps.cli import main
from support import sick_models

SOURCE = """
import torch
from torch import nn

def made(dead):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    with torch.no_grad():
        if dead:
            model[0].bias[3] = -20
    return model, torch.randn(32, 8)

def healthy():
    return made(False)

def sick():
    return made(True)

def large():
    class Large(nn.Module):
        def forward(self, x):
            return x * 1e6
    return Large(), torch.ones(4)

def raises():
    class Raises(nn.Module):
        def forward(self, x):
            return (x / 0) @ x
    return Raises(), torch.ones(2, 3)

def frozen():
    model, x = made(False)
    model[0].requires_grad_(False)
    return model, x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "checked_model.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_the_status_is_1_from_the_severity_on_that_is_asked_for(folder: Path) -> None:
    assert main.main(["check", "checked_model.py:healthy"]) == 0
    assert main.main(["check", "checked_model.py:sick"]) == 1
    assert main.main(["check", "checked_model.py:sick", "--fail-on", "error"]) == 0
    assert main.main(["check", "checked_model.py:large"]) == 0
    assert main.main(["check", "checked_model.py:large", "--fail-on", "advice"]) == 1
    assert main.main(["check", "checked_model.py:sick", "--fail-on", "never"]) == 0
    assert main.main(["check", "checked_model.py:sick", "--fail-on", "error,dead unit"]) == 1
    assert main.main(["check", "checked_model.py:sick", "--fail-on", "weights.dead unit"]) == 0
    assert main.main(["check", "checked_model.py:sick", "--fail-on", "ded unit"]) == 2


def test_rules_are_off_and_thresholds_set_on_the_command_line_and_in_pyproject(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = ["--off", "dead unit", "--off", "outlier channel"]
    assert main.main(["check", "checked_model.py:sick", *off]) == 0
    assert (
        main.main(["check", "checked_model.py:sick", "--off", "outlier channel", "--limit", "activations.below=1e9"])
        == 0
    )
    (folder / "pyproject.toml").write_text('[tool.fxdebug]\noff = ["dead unit", "outlier channel"]\n')
    assert main.main(["check", "checked_model.py:sick"]) == 0
    assert main.main(["check", "checked_model.py:sick", "--no-config"]) == 1
    capsys.readouterr()
    assert main.main(["check", "checked_model.py:sick", "--off", "ded unit"]) == 2
    assert "Did you mean 'dead unit'" in capsys.readouterr().err
    assert main.main(["check", "checked_model.py:sick", "--limit", "activations.below"]) == 2
    assert "give a threshold and a number" in capsys.readouterr().err
    (folder / "pyproject.toml").write_text('[tool.fxdebug]\noff = ["ded unit"]\n')
    assert main.main(["rules"]) == 2
    assert f"{folder / 'pyproject.toml'}: no rule 'ded unit'" in capsys.readouterr().err


def test_backward_adds_the_gradients(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "checked_model.py:frozen", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert main.main(["check", "checked_model.py:frozen", "--backward", "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["rule"], finding["analysis"], finding["path"]) == ("frozen", "gradients", "0")


def test_json_and_csv_name_the_analysis(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "checked_model.py:sick", "--json", "--analyses", "activations"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "fxdebug.check/1" and not told["healthy"]
    assert told["settings"] == {"tensors": True, "analyses": "activations"}
    assert {finding["analysis"] for finding in told["findings"]} == {"activations"}
    assert main.main(["check", "checked_model.py:sick", "--csv", "--off", "outlier channel"]) == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["kind"], row["analysis"]) for row in rows] == [("dead unit", "activations")]


def test_a_model_that_raises_is_checked_until_then(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        main.main(["check", "checked_model.py:raises"])
    assert "[numbers.inf]" in capsys.readouterr().out


def test_a_watched_training_is_checked_by_its_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sick_models.IN_FOLDERS["training.loss spike"](folder / "train")
    assert main.main(["check", str(folder / "train")]) == 1
    out = capsys.readouterr().out
    assert "[training.loss spike]" in out and "step 24" in out and "Checked: training." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--backward"], "--backward needs a model"),
        (["run", "--hf", "x"], "give either the run run or --hf x"),
        (["checked_model.py:healthy", "--rank", "1"], "--rank chooses one of the ranks of a saved run"),
        ([], "no model: give FILE.py:function"),
        (["none"], "none does not exist"),
        (["run", "--analyses", "wieghts"], "Did you mean 'weights'"),
    ],
)
def test_what_cannot_be_checked_has_status_2_and_a_line(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fx_debug(sick_models.mlp(), sick_models.normal(2, 8), save=folder / "run")
    assert main.main(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"], ["--width", "60"]])
def test_the_rules_are_listed(form: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["rules", *form]) == 0
    assert "outlier channel" in capsys.readouterr().out
