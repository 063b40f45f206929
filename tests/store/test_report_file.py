"""The JSON of a report, read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug


def report() -> Any:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    return fxdebug.memory(model, torch.ones(2, 4), steps=2)


@pytest.mark.parametrize("analysis", ["memory", "profile", "flops", "summary"])
def test_a_report_is_read_back_with_all_that_its_file_has(analysis: str, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(2, 4)
    made: Any = {
        "memory": lambda: fxdebug.memory(model, x, steps=3),
        "profile": lambda: fxdebug.profile(model, x, repeats=2, peak=False),
        "flops": lambda: fxdebug.flops(fxdebug.fx_debug(model, x)),
        "summary": lambda: fxdebug.summary(model, x),
    }[analysis]()
    path = made.json(tmp_path / "report.json")
    again = fxdebug.Report.load(path)
    assert again.json_text() == path.read_text("utf-8")
    assert again.text(width=80, color=False) == made.text(width=80, color=False)


def test_findings_are_read_back(tmp_path: Path) -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            self.kept.append(y)
            return y

    made = fxdebug.memory(Keeps(), torch.ones(4), steps=3)
    (again,) = fxdebug.Report.load(made.json(tmp_path / "report.json")).findings
    assert again == made.findings[0]


def damaged(change: Callable[[Any], object]) -> str:
    content = json.loads(report().json_text())
    change(content)
    return json.dumps(content)


DAMAGE: dict[str, tuple[Callable[[Any], object], str]] = {
    "another schema": (lambda c: c.update(schema="other/1"), "its schema is not"),
    "rows that are no list": (lambda c: c.update(rows={}), "rows is an object of 0, not a list"),
    "a row without a cell": (
        lambda c: c["rows"][0].pop("peak"),
        r"rows\[0\] is an object of 7, not an object with call",
    ),
    "a row with a cell more": (lambda c: c["rows"][0].update(more=1), r"rows\[0\] is an object of 9"),
    "a cell that is a list": (lambda c: c["rows"][1].update(peak=[1]), r"rows\[1\].peak is a list of 1"),
    "a field of Python": (lambda c: c["columns"][0].update(field="__class__"), "columns has '__class__' as a field"),
    "a field twice": (lambda c: c["columns"][0].update(field="type"), "columns has a field twice"),
    "an unknown unit": (lambda c: c["columns"][2].update(unit="kg"), r"columns\[2\].unit is 'kg', not one of"),
    "a total that is a number": (lambda c: c["totals"].update(peak=1), "totals is 1, not an object"),
    "a measure that is a text": (lambda c: c["measures"]["memory.peak"].update(x="1"), "measures"),
    "a note without a text": (lambda c: c["notes"][0].pop("what"), r"notes\[0\].what is missing"),
    "a finding that is a number": (lambda c: c.update(findings=[1]), r"findings\[0\] is 1, not an object"),
    "parts without end": (lambda c: c["parts"].append(7), "parts has an item that is no object"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_with_its_place(kind: str, tmp_path: Path) -> None:
    change, told = DAMAGE[kind]
    (tmp_path / "report.json").write_text(damaged(change))
    with pytest.raises(fxdebug.LoadError, match=told):
        fxdebug.Report.load(tmp_path / "report.json")


@pytest.mark.parametrize("text", ["", "[]", "7", "{", '{"schema": "fxdebug.report/1"}', "[" * 100_000])
def test_other_files_are_no_reports(text: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(fxdebug.LoadError, match="is no report that can be read"):
        fxdebug.Report.load(tmp_path / "report.json")


def test_a_report_of_another_version_says_what_to_do(tmp_path: Path) -> None:
    text = report().json_text()
    for version, told in (
        ("2", "upgrade with pip"),
        ("0", "make the report again"),
        ("x", "write one with report.json"),
    ):
        (tmp_path / "report.json").write_text(text.replace("fxdebug.report/1", f"fxdebug.report/{version}", 1))
        with pytest.raises(fxdebug.LoadError, match=told):
            fxdebug.Report.load(tmp_path / "report.json")


def test_a_report_that_was_read_has_no_picture_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures of reports need the extra plot")
    path = fxdebug.profile(nn.Linear(2, 2), torch.ones(1, 2), repeats=1, peak=False).json(tmp_path / "report.json")
    with pytest.raises(fxdebug.UsageError, match="read from a file"):
        fxdebug.Report.load(path).plot(tmp_path / "report.png")


def test_numbers_that_are_not_finite_come_back_as_numbers(tmp_path: Path) -> None:
    class Divides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) / torch.zeros(1)

    x = torch.ones(2, 4)
    for made in (
        fxdebug.gradients(Divides(), x, lambda output: output.sum()),
        fxdebug.activations(Divides(), x),
        fxdebug.memory(Divides(), x),
    ):
        again = fxdebug.Report.load(made.json(tmp_path / "report.json"))
        assert again.text(width=100, color=False) == made.text(width=100, color=False)
        assert again.json_text() == made.json_text()
        assert repr(again.measures) == repr(made.measures)


def test_a_name_that_reads_like_a_number_stays_a_name(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module("inf", nn.Linear(4, 4))
    again = fxdebug.Report.load(fxdebug.activations(model, torch.randn(2, 4)).json(tmp_path / "report.json"))
    assert [row.call for row in again.rows] == ["inf#0", "Sequential#0"]


def test_a_report_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    content = report().as_json()
    new = ("ranked_by", "folds", "at_least", "shared")
    for part in (content, *content["parts"]):
        for name in new:
            del part[name]
        for column in part["columns"]:
            del column["at_least"]
    content["totals"]["elements"] = {"value": "12,345", "unit": ""}  # as weights wrote it
    (tmp_path / "old.json").write_text(json.dumps(content), "utf-8")
    old = fxdebug.Report.load(tmp_path / "old.json")
    assert (old.ranked_by, old.folds, old.at_least, old.shared) == ((), True, (), None)
    assert "elements          12,345" in old.text(width=80) and len(old.rows) == 3


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("ranked_by", ["nothing"], "'nothing' is named as a column"),
        ("shared", {"of": {"0#0": [3]}, "numbers": {"peak": [1.0]}}, "fewer than 4 numbers"),
        ("shared", {"of": {"0#0": [-1]}, "numbers": {}}, "an integer"),
        ("shared", {"of": {}, "numbers": {"none": []}}, "'none' is named as a column"),
        ("at_least", "peak", "a list"),
    ],
)
def test_a_report_that_names_what_is_not_there_is_damaged(name: str, content: Any, told: str, tmp_path: Path) -> None:
    damaged = report().as_json() | {name: content}
    (tmp_path / "damaged.json").write_text(json.dumps(damaged), "utf-8")
    with pytest.raises(fxdebug.LoadError, match=told):
        fxdebug.Report.load(tmp_path / "damaged.json")
