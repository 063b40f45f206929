"""``fxdebug export`` and ``fxdebug open``: by suffix, by program, from a run, a model, a training or a report."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.apps.cli import main
from fxdebug.exports.programs.viewers import VIEWERS

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval(), torch.ones(2, 4)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fxdebug.fx_debug(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(2, 4), save=tmp_path / "run")
    return tmp_path / "run"


def fails(*arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(list(arguments)) == 2
    assert says in capsys.readouterr().err


def test_a_run_is_exported_by_suffix_and_by_program(run, tmp_path, capsys):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: fxdebug[onnx]")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: fxdebug[tensorboard]")
    assert main.main(["export", str(run), "-o", str(tmp_path / "run.onnx")]) == 0
    assert main.main(["export", str(run), "-o", str(tmp_path / "tb"), "--to", "tensorboard", "--option", "step=3"]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'run.onnx'}\nwrote {tmp_path / 'tb'}\n"
    assert [node.op_type for node in onnx.load(tmp_path / "run.onnx").graph.node] == ["Linear", "ReLU"]
    assert sorted(file.name for file in (tmp_path / "tb").iterdir()) == [
        "events.out.tfevents.0000000000.graph.fxdebug", "events.out.tfevents.0000000003.run.fxdebug",
    ]  # fmt: skip


def test_a_model_is_run_once_or_exported_as_one_that_runs(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: fxdebug[onnx]")
    (tmp_path / "model.py").write_text(MODEL)
    target = f"{tmp_path / 'model.py'}:build"
    assert main.main(["export", target, "-o", str(tmp_path / "run.onnx"), "--to", "netron"]) == 0
    assert "export_onnx" not in capsys.readouterr().out
    assert main.main(["export", target, "-o", str(tmp_path / "model.onnx")]) == 0
    assert "export_onnx of Sequential" in capsys.readouterr().out
    assert (tmp_path / "run.onnx").read_bytes() != (tmp_path / "model.onnx").read_bytes()


def test_a_training_and_a_report_are_exported(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: fxdebug[tensorboard]")
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, optimizer, save=tmp_path / "train"):
        model(torch.ones(1, 2)).mean().backward()
        optimizer.step()
    fxdebug.weights(model).json(tmp_path / "weights.json")
    for target in ("train", "weights.json"):
        assert main.main(["export", str(tmp_path / target), "-o", str(tmp_path / "tb"), "--to", "tensorboard"]) == 0
    assert len(list((tmp_path / "tb").iterdir())) == 2


def test_what_cannot_be_exported_is_a_message(run, tmp_path, capsys):
    fails("export", str(run), "-o", "x", "--to", "tensorbord", says="Did you mean 'tensorboard'?", capsys=capsys)
    fails("export", str(run), "-o", "x.onnx", "--option", "deep", says="give NAME=VALUE", capsys=capsys)
    fails("export", str(run), "-o", "x.onnx", "--option", "deep=1", says=".onnx has no option 'deep'", capsys=capsys)
    fails("export", "-o", "x.onnx", says="nothing to write", capsys=capsys)
    fails("open", str(run), says="name the program: --netron or --tensorboard", capsys=capsys)


def test_the_programs_of_the_command_line_are_those_there_are():
    assert set(main._PROGRAMS) == set(VIEWERS)


@pytest.mark.parametrize("program", ["netron", "tensorboard"])
def test_open_starts_the_program_on_a_run_and_ends_with_it(run, program):
    pytest.importorskip(program, reason=f"{program} is not installed")
    command = [sys.executable, "-m", "fxdebug", "open", str(run), f"--{program}", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               start_new_session=True)  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().partition(": ")[2].strip()
        with urllib.request.urlopen(address, timeout=100) as answer:
            assert answer.status == 200
    finally:
        import os

        os.killpg(process.pid, signal.SIGINT)
        process.wait(300)
        assert process.stdout is not None
        process.stdout.close()


def test_a_program_that_is_not_installed_is_named_with_its_extra(run, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    fails("open", str(run), "--tensorboard", says="pip install 'fxdebug[tensorboard]'", capsys=capsys)
