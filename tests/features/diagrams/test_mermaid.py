"""Runs as Mermaid flowcharts: within its limits, and whatever the names of the modules are."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.features.diagrams.mermaid import MOST_ARROWS, MOST_LETTERS
from support.exported import RUNS, run

LINE = re.compile(
    r'flowchart TB|  %% .*|  subgraph b\d+ \["[^"\n]*"\]|  end|    n\d+(\(|\[\[|\(\[)"[^"\n]*"(\)|\]\]|\]\))'
    r'|  n\d+ (-->|-\.->|-\.-)(\|"[^"\n]*"\|)? n\d+|  remark>"[^"\n]*"\]|  classDef raised .*|  class [n\d,]+ raised'
)


@pytest.mark.parametrize("name", RUNS)
def test_every_line_is_one_that_mermaid_has_and_boxes_are_closed(tmp_path, name):
    text = run(name).export(tmp_path / "run.mmd").read_text()
    lines = text.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert sum(line.startswith("  subgraph") for line in lines) == lines.count("  end")
    assert len(text) <= MOST_LETTERS and sum("-->" in line for line in lines) <= MOST_ARROWS


def test_a_small_run_is_one_chart(tmp_path):
    trace = fx_debug(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2))
    assert trace.export(tmp_path / "run.mmd").read_text() == (
        "flowchart TB\n"
        '  subgraph b1 ["Sequential"]\n'
        '    n0[["0 Linear"]]\n'
        '    n1[["1 ReLU"]]\n'
        "  end\n"
        '    n2(["input"])\n'
        '    n3(["output"])\n'
        '  n2 -->|"1×2"| n0\n'
        '  n0 -->|"1×2"| n1\n'
        '  n1 -->|"1×2"| n3\n'
    )


def test_a_run_that_is_too_large_is_closed_further_and_says_so(tmp_path):
    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in range(600):
                x = x + step if step % 2 else x.sin()
            return x

    trace = fx_debug(nn.Sequential(nn.Sequential(Many()), nn.ReLU()), torch.ones(1, 2))
    text = trace.export(tmp_path / "run.mmd", depth=9, leaves=True).read_text()
    assert "closed below depth" in text and text.count("-->") <= MOST_ARROWS


def test_a_call_that_raised_is_red(tmp_path):
    assert re.search(r"^  class n\d+ raised$", run("crashed").export(tmp_path / "run.mmd").read_text(), re.MULTILINE)


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = self.cell(x)
        return x


@pytest.mark.parametrize(
    "model, title",
    [
        (nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)]), "0 … 5 ×6 Linear"),
        (_Cell(), "cell ×4 Linear"),
        (nn.Sequential(*[nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)]), "0 … 2 ×3 Sequential"),
    ],
    ids=["layers", "one layer in a loop", "blocks"],
)
def test_repeated_layers_are_counted_once_as_in_dot(tmp_path, model, title):
    trace = fx_debug(model, torch.ones(1, 2))
    text = trace.export(tmp_path / "run.mmd").read_text()
    assert text.count("×") - text.count("1×2") == 1 and f'["{title}"]' in text
    dot = re.sub(r"<[^<>]*>|label=<", "", trace.export(tmp_path / "run.dot").read_text())
    assert title in re.sub(r" +", " ", dot)
