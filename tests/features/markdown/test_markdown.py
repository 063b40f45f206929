"""The state of a run as Markdown: environment, calls, findings, a comparison; nothing in it is taken for markup."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.exported import RUNS, run


def blocks(text: str) -> tuple[str, list[str]]:
    """The text outside code, and the blocks of code."""
    found = re.findall(r"^(`{3,})text\n(.*?)\n\1$", text, re.MULTILINE | re.DOTALL)
    return re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL), [code for _, code in found]


@pytest.mark.parametrize("name", RUNS)
def test_a_report_has_the_environment_the_tree_and_no_markup_of_the_model(tmp_path, name):
    trace = run(name)
    outside, code = blocks(trace.export(tmp_path / "run.md").read_text())
    assert code[-1].startswith(trace.model)
    assert (
        outside.startswith(f"# {trace.model}: ")
        and f"| torch | {trace.versions['torch'].replace('_', '&#95;')} |" in outside
    )
    assert not re.search(r"[<>\x1b\u202e]", outside)
    assert "## Calls" in outside and "## Findings" in outside


def test_findings_are_a_table_with_the_line_that_made_them(tmp_path):
    class Log(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 0 - 1).log()

    trace = fx_debug(Log(), torch.ones(2))
    outside, _ = blocks(trace.export(tmp_path / "run.md").read_text())
    (row,) = [line for line in outside.splitlines() if line.startswith("| error")]
    assert re.fullmatch(r"\| error \| nan \| Log&#35;0/log(&#95;\d+)? \| test&#95;markdown\.py:\d+ \| .* \|", row)
    assert math.isnan(trace.output[0])


def test_a_run_that_raised_begins_with_the_exception_and_names_no_folder(tmp_path):
    text = run("crashed").export(tmp_path / "run.md").read_text()
    assert "# Sequential: the run raised" in text and "RuntimeError: mat1 and mat2" in text
    assert "/container.py" not in text  # only the name of the file


def test_a_comparison_has_both_environments_and_the_first_difference(tmp_path):
    torch.manual_seed(0)
    a, b = nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    b.load_state_dict(a.state_dict())
    comparison = fxdebug.compare(fx_debug(a, torch.ones(1, 4)), fx_debug(b, torch.ones(1, 4)))
    outside, (code,) = blocks(comparison.export(tmp_path / "compared.md").read_text())
    assert outside.startswith("# Sequential and Sequential: different\n") and "| environment | a | b |" in outside
    assert code == comparison.text(width=100, color=False)
    assert "| where | kind | error | line | because |" in outside


def test_a_fence_is_longer_than_any_in_the_names(tmp_path):
    model = nn.Sequential()
    model.add_module("```````", nn.ReLU())
    text = fx_debug(model, torch.ones(2)).export(tmp_path / "run.md").read_text()
    assert "\n````````text\n" in text
