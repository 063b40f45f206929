"""The measures of two runs side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import UsageError, fx_debug


def run(rows: int) -> fxdebug.Trace:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)], nn.Linear(4, 2))
    return fx_debug(model, torch.ones(rows, 4)).with_measures(fxdebug.memory(model, torch.ones(rows, 4)))


@pytest.fixture(scope="module")
def comparison() -> fxdebug.api.Comparison:
    return fxdebug.compare(run(2), run(6))


def test_pairs_of_calls_have_both_numbers_and_their_ratio(comparison: fxdebug.api.Comparison) -> None:
    report = comparison.measures("flops,memory.activations")
    assert report.text(width=80, color=False).splitlines()[:7] == [
        "comparison of Sequential  by flops",
        "call       type              a        b b / a",
        "Sequential Sequential 224 FLOP 672 FLOP     3",
        "0…2 ×3     Sequential 192 FLOP 576 FLOP     3",
        "0…2.0 ×3   Linear     192 FLOP 576 FLOP     3",
        "3          Linear      32 FLOP  96 FLOP     3",
        "0…2.1 ×3   ReLU         0 FLOP   0 FLOP   n/a",
    ]
    rows = {row.call: (row.a, row.b, row.ratio, row.partner) for row in report.rows}
    assert rows["0.0#0"] == (64, 192, 3.0, "0.0#0") and rows["0.1#0"] == (0, 0, None, "0.1#0")
    assert report.columns[2].unit == "FLOP" and report.parts[0].settings == {"by": "memory.activations"}


def test_statistics_and_durations_are_measures_too(comparison: fxdebug.api.Comparison) -> None:
    report = comparison.measures(["absmax", "duration", "params"])
    seconds = report.parts[0].rows
    assert sorted(seconds, key=lambda row: -abs(row.b - row.a)) == list(seconds) and seconds[0].a != seconds[0].b
    assert len(report.rows) == 11 and all(row.b == pytest.approx(row.a) for row in report.rows)
    assert {row.ratio for row in report.parts[1].rows if row.a} == {1.0}


def test_a_measure_that_a_run_does_not_have_is_an_error(comparison: fxdebug.api.Comparison) -> None:
    with pytest.raises(UsageError, match=r"a has no measure 'time.self': attach it with with_measures"):
        comparison.measures("time.self")
    with pytest.raises(UsageError, match="no measure to compare: name some"):
        comparison.measures("")


def test_files_of_a_comparison_have_the_measures_of_both_runs(
    comparison: fxdebug.api.Comparison, tmp_path: Path
) -> None:
    with comparison.export(tmp_path / "c.csv").open(encoding="utf-8") as file:
        rows = {(row["path"], row["op"]): row for row in csv.DictReader(file)}
    assert (rows["3", ""]["a_memory.peak"], rows["3", ""]["b_memory.peak"]) == ("16", "48")
    data = json.loads(comparison.export(tmp_path / "c.json").read_text(encoding="utf-8"))
    (row,) = [row for row in data["rows"] if row["path"] == "3" and row["op"] is None]
    assert (row["taken"]["a"]["memory.peak"], row["taken"]["b"]["memory.peak"]) == (16, 48)
