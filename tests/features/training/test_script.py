"""``fxdebug watch train.py``: a script runs as it would, and what it trains is watched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fxdebug
from fxdebug.apps.cli.main import main
from fxdebug.store.training_file import read_training

MAKES = """
import os, sys
import torch
from torch import nn
torch.manual_seed(0)
def train(net, optimizer, steps=30):
    for _ in range(steps):
        x = torch.randn(16, 4)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
def make():
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)
"""
ENDS = "\nprint(sys.argv[1:], __name__, torch.rand(1).item(), os.environ.get('PYTHONPATH'))\n"
SCRIPTS = {
    "one model": (MAKES + "net, optimizer = make(); print(train(net, optimizer))" + ENDS + "sys.exit(3)", 3),
    "none": ("import sys\nprint(sys.argv)", 0),
    "two models, and it raises": (
        MAKES + "for net, optimizer in (make(), make()): print(train(net, optimizer))" + ENDS
        + "raise KeyError('over')", 1,
    ),
    "it forks": (
        MAKES + "if not (pid := os.fork()):\n    train(*make())\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "net, optimizer = make(); print(train(net, optimizer))" + ENDS, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_the_status_and_the_output_that_it_has_by_itself(name: str, tmp_path: Path) -> None:
    text, status = SCRIPTS[name]
    script = tmp_path / "train.py"
    script.write_text(text)
    plain = subprocess.run([sys.executable, script, "--epochs", "3"], capture_output=True, text=True, cwd=tmp_path)
    command: list[str | Path] = [sys.executable, "-m", "fxdebug", "watch", "--save", "seen", script, "--epochs", "3"]
    watched = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (status, watched.stdout)
    assert watched.returncode == status
    told = [line for line in watched.stderr.splitlines() if line.startswith("fxdebug: ")]
    if name == "none":
        assert told == [] and not (tmp_path / "seen").exists()
        return
    assert len(read_training(tmp_path / "seen").steps) >= 29
    count = 2 if name == "two models, and it raises" else 1
    assert [line.split(":")[1] for line in told] == [" Sequential"] * count
    if count == 2:
        assert (
            "KeyError: 'over'" in watched.stderr and len(read_training(tmp_path / "seen" / "Sequential-2").steps) >= 29
        )
        assert [incident.trouble for incident in read_training(tmp_path / "seen").incidents] == ["exception"]


def test_a_script_that_is_not_there_is_told_and_behind_a_folder_stand_options_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path / "none.py")]) == 2
    assert "none.py is no file: give a Python script" in capsys.readouterr().err
    with fxdebug.watch(torch.nn.Linear(1, 1), save=tmp_path):
        pass
    for arguments in (["--json", str(tmp_path)], [str(tmp_path), "--json"]):
        assert main(["watch", *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["answer"] == "cannot tell: no loss was seen in 0 steps"
    with pytest.raises(SystemExit):
        main(["watch", str(tmp_path), "--epochs", "3"])
    assert "unrecognized arguments: --epochs 3" in capsys.readouterr().err
