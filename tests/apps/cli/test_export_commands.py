"""``fxdebug export`` and ``fxdebug open``: by suffix, by program, from a run, a model, a training or a report."""

from __future__ import annotations

import json
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
from fxdebug.data.trace import replaced
from fxdebug.exports.viewers import VIEWERS

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


def test_two_runs_are_exported_as_their_comparison(run, tmp_path, capsys):
    fxdebug.fx_debug(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), torch.ones(2, 4), save=tmp_path / "other")
    both = str(run), str(tmp_path / "other")
    arguments = ["--map", "0=0", "--to", "model-explorer"]
    assert main.main(["export", *both, "-o", str(tmp_path / "explorer"), *arguments]) == 0
    graphs = json.loads((tmp_path / "explorer" / "graph.json").read_text())["graphs"]
    assert [graph["id"] for graph in graphs] == ["a: Sequential", "b: Sequential"]
    assert main.main(["compare", *both, "-o", str(tmp_path / "same"), *arguments]) == 1
    for file in (tmp_path / "explorer").iterdir():
        assert (tmp_path / "same" / file.name).read_bytes() == file.read_bytes()
    fails("export", *both, "-o", "x.onnx", says="nothing exports to '.onnx'", capsys=capsys)
    fails("compare", *both, "--to", "model-explorer", says="name what to write: -o PATH", capsys=capsys)


def test_all_ranks_of_a_run_are_processes_of_one_file_and_one_is_chosen(tmp_path, capsys):
    folder, trace = tmp_path / "run", fxdebug.fx_debug(nn.Linear(2, 2), torch.ones(1, 2))
    for rank in (0, 1):
        replaced(trace, settings={**trace.settings, "rank": rank}).save(folder / f"rank-{rank}")
    for form, chosen, expected in (
        (".trace.json", [], [0, 1]),
        (".json", ["--to", "chrome-trace", "--rank", "1"], [1]),
    ):
        assert main.main(["export", str(folder), "-o", str(tmp_path / f"run{form}"), *chosen]) == 0
        events = json.loads((tmp_path / f"run{form}").read_text())["traceEvents"]
        names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        assert names == [f"Linear, rank {rank}" for rank in expected]
    says = "is a run of 2 ranks: give --rank 0 … --rank 1"
    fails("export", str(folder), "-o", str(tmp_path / "x.svg"), says=says, capsys=capsys)


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
