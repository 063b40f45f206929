"""``fxdebug measures``, ``--save`` and ``--into``, and measures in ``show``, ``find``, ``graph`` and ``compare``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import fxdebug
from fxdebug.apps.cli.main import main

MODEL = """
import torch
def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), torch.ones(3, 4)
def other():
    return torch.nn.Sequential(torch.nn.ReLU()), torch.ones(3, 4)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs")
    (folder / "model.py").write_text(MODEL)
    target = f"{folder / 'model.py'}:build"
    assert main(["profile", target, "--repeats", "2", "--save", str(folder / "a"), "--json"]) in (0, 1)
    assert main(["memory", target, "--into", str(folder / "a")]) == 0
    assert main(["memory", target, "--save", str(folder / "b")]) == 0
    return folder


def printed(capsys: Any, *arguments: object) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    text: str = capsys.readouterr().out
    return text


def test_measures_are_attached_to_the_run_that_is_saved_or_was_saved(runs: Path, capsys: Any) -> None:
    taken = fxdebug.load(runs / "a").taken
    assert {"time.self", "time.total", "memory.peak"} <= taken.keys()
    assert taken["time.self"].numbers.keys() >= {"Sequential#0", "0#0", "0#0/linear", "2#0/linear"}
    assert printed(capsys, "flops", runs / "b", "--save").endswith(
        f"measures saved to {runs / 'b' / 'measures.json'}; look at them with: fxdebug measures {runs / 'b'}\n"
    )
    assert list(fxdebug.load(runs / "b").taken)[-3:] == ["flops", "flops.self", "flops.backward"]
    assert main(["summary", str(runs / "b"), "--save", "--csv"]) == 0


def test_a_model_that_does_not_fit_the_run_is_an_error(runs: Path, capsys: Any) -> None:
    assert main(["memory", f"{runs / 'model.py'}:other", "--into", str(runs / "a")]) == 2
    assert "memory is of another model: 0#0 is a ReLU there, a Linear here" in capsys.readouterr().err
    assert main(["memory", f"{runs / 'model.py'}:other", "--into", "a", "--save", "b"]) == 2
    assert "give either --save b or --into a" in capsys.readouterr().err


def test_the_list_has_every_measure_or_those_of_a_run(runs: Path, capsys: Any) -> None:
    lines = printed(capsys, "measures", "--width", 80).splitlines()
    assert "flops.rate                 FLOP/s  co··  operations per second of its own time" in lines
    assert all(len(line) <= 80 for line in lines)
    every = json.loads(printed(capsys, "measures", "--json"))
    assert every["schema"] == "fxdebug.measures/1" and every["model"] is None
    of_run = list(csv.DictReader(io.StringIO(printed(capsys, "measures", runs / "a", "--csv"))))
    assert {row["name"] for row in of_run} <= {row["name"] for row in every["measures"]}
    (peak,) = [row for row in of_run if row["name"] == "memory.peak"]
    assert (peak["unit"], peak["of"], peak["adds"]) == ("B", "call", "False")
    assert peak["from"].startswith("memory, steps 1, device cpu")
    assert "measured by memory, steps 1, device cpu" in printed(capsys, "measures", runs / "a")


def test_columns_are_text_json_and_csv(runs: Path, capsys: Any) -> None:
    text = printed(capsys, "show", runs / "a", "--columns", "memory.peak,params,kernel", "--width", 80)
    assert text.splitlines()[1:4] == [
        "           memory.peak",
        "call                 B params kernel",
        "Sequential         192     58",
    ]
    calls = json.loads(printed(capsys, "show", runs / "a", "--columns", "params,kernel", "--json"))["calls"]
    assert calls[1]["columns"] == {"params": 40, "kernel": ""} and calls[1]["measures"]["memory.peak"] == 96
    assert "columns" not in json.loads(printed(capsys, "show", runs / "a", "0", "--json"))
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "show", runs / "a", "--columns", "params", "--csv"))))
    assert (rows[1]["memory.peak"], rows[1]["params"]) == ("96", "40")
    assert main(["show", str(runs / "a"), "--columns", "parms"]) == 2
    assert "no column 'parms'. Did you mean 'params'?" in capsys.readouterr().err


def test_found_lines_show_the_measures_asked_for_with_their_units(runs: Path, capsys: Any) -> None:
    lines = printed(capsys, "find", runs / "a", "--where", "memory.peak >= 96B and flops > 0.1kFLOP").splitlines()
    assert [line.split()[:7] for line in lines[1:3]] == [
        ["#0", "Sequential", "float32[3,", "2]", "192", "B", "288"],
        ["0#0", "Linear", "float32[3,", "8]", "96", "B", "192"],
    ]
    found = json.loads(printed(capsys, "find", runs / "a", "--ops", "--where", "flops > 0", "--json"))["found"]
    assert [(row["id"], row["facts"]) for row in found] == [
        ("0#0/linear", {"flops": 192}), ("2#0/linear", {"flops": 96}),
    ]  # fmt: skip
    assert "time.self" in found[0]["measures"]


def test_a_picture_is_coloured_by_a_measure_with_a_legend(runs: Path, capsys: Any) -> None:
    target = runs / "a.dot"
    printed(capsys, "graph", runs / "a", "--color", "memory.peak", "--measures", "flops", "-o", target)
    text = target.read_text(encoding="utf-8")
    assert "memory.peak from 0 B" in text and "to 96 B" in text and "flops 192 FLOP" in text
    assert main(["graph", str(runs / "a"), "--color", "time.slef", "-o", str(target)]) == 2
    assert "Did you mean 'time.self'" in capsys.readouterr().err


def test_two_runs_are_compared_by_their_measures(runs: Path, capsys: Any) -> None:
    text = printed(capsys, "compare", runs / "a", runs / "b", "--measures", "memory.peak,params", "--width", 80)
    assert "comparison of Sequential  by memory.peak" in text and "comparison by params" in text
    data = json.loads(printed(capsys, "compare", runs / "a", runs / "b", "--measures", "memory.peak", "--json"))
    assert data["measures"]["rows"][0]["call"] == "Sequential#0" and data["measures"]["rows"][0]["ratio"] == 1.0
