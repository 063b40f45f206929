"""Pictures and screens of the reports on health: one file opens, many weights fit, ranges of repeated layers."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image
from torch import nn

import fxdebug
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import LoadError, UsageError
from fxdebug.exports.report.figures import column_of, draw_bars, stacked_axes
from fxdebug.exports.report.text import lines_of, screen
from fxdebug.features.training import picture as picture_of_training
from fxdebug.features.weights import picture as picture_of_weights
from fxdebug.plugins import report


def stack(layers: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(layers)])


def reports(folder: Path, layers: int = 3) -> dict[str, Any]:
    model = stack(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with fxdebug.watch(model, every=2, save=folder) as watched:
        for _ in range(5):
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    x = torch.randn(4, 8)
    return {
        "gradients": fxdebug.gradients(model, x, lambda output: output.sum()),
        "weights": fxdebug.weights(model),
        "watch": watched.report(),
    }


@pytest.mark.parametrize("name", ["gradients", "weights", "watch"])
def test_each_report_on_health_has_a_picture_that_opens(name: str, tmp_path: Path) -> None:
    with Image.open(reports(tmp_path)[name].plot(tmp_path / "picture.png")) as picture:
        picture.load()
        assert picture.width > 600 and picture.height > 300


def test_a_training_without_a_finite_number_has_a_picture(tmp_path: Path) -> None:
    with fxdebug.watch(stack(1), save=tmp_path) as watched:
        pass
    assert watched.report().plot(tmp_path / "none.png").exists()


def test_of_many_weights_the_same_place_of_all_layers_is_one_small_picture() -> None:
    few, many = fxdebug.weights(stack(3)), fxdebug.weights(stack(40))
    assert [len(group) for group in picture_of_weights.groups_of(few.histograms).values()] == [1] * 6
    groups = picture_of_weights.groups_of(many.histograms)
    assert {name: len(group) for name, group in groups.items()} == {"#.#.weight": 40, "#.#.bias": 40}
    assert len([axis for axis in picture_of_weights.draw(many).axes if axis.get_visible()]) == 2


def test_bars_without_a_unit_are_counts_in_full_and_other_numbers_as_in_the_table() -> None:
    rows = [{"call": "#0", "growth": 1.6249}, {"call": "0#0", "growth": 1234567}, {"call": "1#0", "growth": None}]
    drawn = report("widths", type("T", (), {"model": "Net"}), rows)
    _, (axis,) = stacked_axes(drawn, "growth", [2.0])
    draw_bars(axis, lines_of(drawn, everything=True), column_of(drawn, "growth"))
    assert [text.get_text() for text in axis.texts] == [" 1.62", " 1,234,567", " n/a"]


def test_an_incident_is_named_in_the_picture(tmp_path: Path) -> None:
    report = reports(tmp_path)["watch"]
    marked = type(report)(**{**vars(report), "marks": ((3, "loss"),)})
    texts = [text.get_text() for axis in picture_of_training.draw(marked).axes for text in axis.texts]
    assert texts == [" step 3: loss"] * 2


@dataclass(frozen=True)
class Row:
    name: str
    number: float | None
    share: float | None


def shown(*rows: Row, folds: bool = True) -> list[str]:
    columns = (Column("name", "name"), Column("number", "number"), Column("share", "share", "%"))
    return screen(ReportData("test", "Net", columns, rows, folds=folds), width=80, color=False).splitlines()[1:]


def test_repeated_layers_show_the_range_of_numbers_that_do_not_add() -> None:
    assert shown(Row("h.0", 0.123, 1.0), Row("h.1", 0.456, 20.0), Row("head", 3.0, None)) == [
        "name        number  share",
        "h.0…1 ×2 0.12…0.46 1…20 %",
        "head             3    n/a",
    ]


def test_a_range_that_rounds_to_one_number_is_that_number_and_nan_is_not_hidden() -> None:
    assert shown(Row("h.0", 0.5001, None), Row("h.1", 0.5002, None))[1].split() == ["h.0…1", "×2", "0.5"]
    assert "0.1…0.2, nan" in shown(Row("h.0", 0.1, 1.0), Row("h.1", math.nan, 1.0), Row("h.2", 0.2, 1.0))[1]


def test_rows_that_are_steps_are_not_folded() -> None:
    assert len(shown(Row("step 0", 1.0, None), Row("step 5", 2.0, None), folds=False)) == 3


@pytest.mark.parametrize("analysis", ["activations", "attention", "memory", "profile", "weights", "watch"])
def test_a_report_from_a_file_says_what_its_picture_lacks(analysis: str, tmp_path: Path) -> None:
    x, layer = torch.randn(2, 3, 4), nn.MultiheadAttention(4, 2, batch_first=True)
    made: dict[str, Callable[[], Any]] = {
        "activations": lambda: fxdebug.activations(layer, (x, x, x)),
        "attention": lambda: fxdebug.attention(layer, (x, x, x)),
        "memory": lambda: fxdebug.memory(layer, (x, x, x)),
        "profile": lambda: fxdebug.profile(layer, (x, x, x), repeats=2, peak=False),
    }
    report = made[analysis]() if analysis in made else reports(tmp_path / "training")[analysis]
    report.plot(tmp_path / "live.svg")
    again = fxdebug.Report.load(report.json(tmp_path / "report.json"))
    with pytest.raises(UsageError, match=f"this report on {analysis} has no .* to draw: it was read from a file"):
        again.plot(tmp_path / "again.svg")


@pytest.mark.parametrize("analysis", ["flops", "summary", "gradients"])
def test_a_report_from_a_file_whose_rows_are_of_another_kind_is_no_error_of_ours(analysis: str, tmp_path: Path) -> None:
    report = fxdebug.memory(stack(1), torch.randn(4, 8))
    content = json.loads(report.json_text()) | {"analysis": analysis}
    (tmp_path / "report.json").write_text(json.dumps(content))
    with pytest.raises(LoadError, match=f"none that a picture of {analysis} shows"):
        fxdebug.Report.load(tmp_path / "report.json").plot(tmp_path / "picture.svg")


@pytest.mark.parametrize("analysis", ["flops", "summary", "activations", "gradients", "weights", "memory", "profile"])
def test_names_with_escapes_and_formulas_are_drawn_as_they_are(analysis: str, tmp_path: Path) -> None:
    name = "a\x1b[31m\u202e\x07$x_{$--"
    model = nn.Sequential(OrderedDict({name: nn.Linear(8, 8), "b$": nn.ReLU()}))
    x = torch.randn(4, 8)
    report: Any = {
        "flops": lambda: fxdebug.flops(model, x),
        "summary": lambda: fxdebug.summary(model, x),
        "activations": lambda: fxdebug.activations(model, x),
        "gradients": lambda: fxdebug.gradients(model, x, lambda output: output.sum()),
        "weights": lambda: fxdebug.weights(model),
        "memory": lambda: fxdebug.memory(model, x),
        "profile": lambda: fxdebug.profile(model, x, repeats=2, peak=False),
    }[analysis]()
    text = report.plot(tmp_path / "picture.svg").read_text("utf-8")
    ElementTree.fromstring(text)
    assert [c for c in set(text) if not c.isprintable() and c != "\n"] == []
