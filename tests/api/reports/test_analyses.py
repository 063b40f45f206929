"""Every analysis answers every kind of run with a report, or says what is missing."""

from __future__ import annotations

import csv
import html.parser
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.api.reports.report import Report
from support.analyses import ANALYSES, RUN
from support.sweep import whole

Built = tuple[nn.Module, Any]


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first(x)
        raise ZeroDivisionError("planted")


class Calls(nn.Module):
    """Calls one module again and again."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.layer = count, nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = self.layer(x)
        return x


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second, self.tied = self.first, nn.Linear(4, 4)
        self.tied.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tied(self.second(self.first(x)))


class Empty(nn.Module):
    def forward(self, x: torch.Tensor | None = None) -> torch.Tensor | None:
        return x


class OddNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module("<b>&\"x'\n[red]", nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return next(self.children())(x)


MODELS: dict[str, Callable[[], Built]] = {
    "empty": lambda: (Empty(), torch.ones(4)),
    "without tensors": lambda: (Empty(), ()),
    "crashed": lambda: (Raises(), torch.ones(2, 4)),
    "NaN": lambda: (nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)), torch.full((2, 4), float("nan"))),
    "meta": lambda: (nn.Linear(4, 4, device="meta"), torch.ones(2, 4, device="meta")),
    "shared module": lambda: (Shared(), torch.ones(2, 4)),
    "one operation": lambda: (nn.ReLU(), torch.ones(2, 4)),
    "many calls": lambda: (Calls(10_000 if whole() else 1_500), torch.ones(2)),
    "odd names": lambda: (OddNames(), torch.ones(2, 4)),
}


@pytest.fixture(scope="module")
def traces() -> dict[str, fxdebug.Trace]:
    """Runs of all models, once; that of one that raised as far as it went, and one without operations."""
    made: dict[str, fxdebug.Trace] = {}
    for kind, build in MODELS.items():
        try:
            made[kind] = fxdebug.fx_debug(*build())
        except ZeroDivisionError:
            failed = fxdebug.last_failed()
            assert failed is not None
            made[kind] = failed
    made["without operations"] = fxdebug.fx_debug(nn.Linear(4, 4), torch.ones(2, 4), graph=False)
    return made


def judge(report: Report[Any], name: str, folder: Path) -> None:
    """Every form of a report is there, and can be read."""
    assert isinstance(report, Report) and report.analysis == name and report.subject
    wide = [line for line in report.text(width=80, color=False).splitlines() if len(line) > 80]
    assert wide == []
    assert json.loads(report.json_text())["analysis"] == name
    rows = list(csv.reader(io.StringIO(report.csv_text())))
    assert len(rows) == 1 + len(report.rows) and {len(row) for row in rows} == {len(report.columns)}
    page = report._repr_html_()
    assert len(page.encode()) <= 64 * 1024
    assert balanced(page) and balanced(report.export(folder / "report.html").read_text("utf-8"))
    assert "<b>&" not in page.replace("<b>&lt;", "")


def balanced(page: str) -> bool:
    """Is every tag closed that was opened, in its order?"""

    class Tags(html.parser.HTMLParser):
        opened: list[str] = []

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag != "meta":
                self.opened = [*self.opened, tag]

        def handle_endtag(self, tag: str) -> None:
            assert self.opened[-1] == tag
            self.opened = self.opened[:-1]

    tags = Tags()
    tags.feed(page)
    return tags.opened == []


ON_RUNS = [name for name, analysis in ANALYSES.items() if analysis.needs == RUN]
ON_MODELS = [name for name, analysis in ANALYSES.items() if analysis.needs != RUN]


@pytest.mark.parametrize("kind", [*MODELS, "without operations"])
@pytest.mark.parametrize("name", ON_RUNS)
def test_an_analysis_of_a_run_answers(name: str, kind: str, traces: dict[str, fxdebug.Trace], tmp_path: Path) -> None:
    if (name, kind) == ("flops", "without operations"):
        with pytest.raises(fxdebug.UsageError, match="flops needs operations, and this run has none: trace it with"):
            fxdebug.flops(traces[kind])
        return
    analysis = ANALYSES[name]
    report = analysis.function(traces[kind], **analysis.options)
    judge(report, name, tmp_path)
    if kind == "without operations":
        assert any("operations" in note.what for note in report.notes)
    if kind == "crashed":
        assert any("the run raised" in note.what.lower() for note in report.notes)


# Analyses that cannot be done with a model, and a part of the message that says why.
IMPOSSIBLE = {
    ("gradients", "empty"): "without a gradient",
    ("gradients", "one operation"): "without a gradient",
    ("gradients", "many calls"): "without a gradient",
    ("gradients", "without tensors"): "there is no backward",
    ("gradients", "meta"): "the model is on the meta device",
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", ON_MODELS)
def test_an_analysis_that_runs_a_model_answers(name: str, kind: str, tmp_path: Path) -> None:
    analysis = ANALYSES[name]
    model, inputs = MODELS[kind]()
    if kind == "crashed":
        with pytest.raises(ZeroDivisionError, match="planted"):  # the model's own exception
            analysis.function(model, inputs, **analysis.options)
        return
    if (name, kind) in IMPOSSIBLE:
        with pytest.raises(fxdebug.UsageError, match=IMPOSSIBLE[name, kind]):
            analysis.function(model, inputs, **analysis.options)
        return
    judge(analysis.function(model, inputs, **analysis.options), name, tmp_path)


def test_every_public_function_that_answers_with_a_report_is_in_the_table() -> None:
    for name, analysis in ANALYSES.items():
        assert getattr(fxdebug, name) is analysis.function
