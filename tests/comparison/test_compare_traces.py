"""Comparisons of two runs: the findings, the tolerance, the notes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import compare, fx_debug
from fxdebug.comparison.diagnosis import root_cause
from fxdebug.comparison.result import KINDS
from fxdebug.comparison.tolerance import tolerance_of
from fxdebug.errors import UsageError
from support.blocks import Model, X, changed, model, run


def test_anything_but_a_trace_is_refused():
    with pytest.raises(UsageError, match="two traces"):
        fxdebug.compare(run(model()), 3)  # type: ignore[arg-type]


# Findings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", ["stats", "tensors", "samples"])
def test_a_changed_weight_is_named_with_its_call_operation_and_line(values):
    comparison = changed(lambda other: other.blocks[1].down.weight[3].mul_(2), values)
    first = comparison.first
    assert (first.path, first.op, first.kind) == ("blocks.1.down", "linear", "weights")
    assert first.source.rpartition("/")[2].startswith("blocks.py:")
    assert first.a.path == first.b.path == "blocks.1.down"
    assert len(comparison.findings) == 1
    assert {row.path for row in comparison.chain()} >= {"blocks.1", "blocks.2", "head", ""}


@pytest.mark.parametrize("parts", [["_diagnosed", "_behind"], ["_behind"]])
def test_a_rule_that_fails_costs_the_cause_and_not_the_comparison(
    parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object) -> None:
        raise ZeroDivisionError

    for part in parts:
        monkeypatch.setattr(root_cause.Diagnoser, part, fails)
    first = changed(lambda other: other.blocks[1].down.weight[3].mul_(2), "stats").first
    assert (first.path, first.op) == ("blocks.1.down", "linear")
    if "_diagnosed" in parts:
        told = f"the same inputs give other values; {root_cause.NOT_LOOKED_FOR} (ZeroDivisionError)"
        assert (first.kind, first.because) == ("values", told)


def test_every_changed_weight_that_was_given_the_right_values_is_found():
    def change(other: Model) -> None:
        other.blocks[1].up.weight[0].mul_(3)
        other.blocks[1].norm.weight[2] = 5.0

    assert [row.path for row in changed(change).findings] == ["blocks.1.norm"]  # behind it nothing is clean


def test_other_inputs_are_the_finding_and_nothing_else_is():
    comparison = changed(lambda other: None, x=X + 1)
    assert [(row.kind, row.path) for row in comparison.findings] == [("input", "")]


def test_without_graphs_the_call_is_named_and_no_operation():
    one, other = model(), model()
    with torch.no_grad():
        other.blocks[2].up.weight[0].mul_(2)
    first = fxdebug.compare(run(one, graph=False), run(other, graph=False)).first
    assert (first.path, first.op) == ("blocks.2.up", None)


def test_a_run_that_raised_differs_where_it_raised():
    class Raises(Model):
        def forward(self, x):
            x = self.blocks[0](x)
            raise ValueError("no more")

    torch.manual_seed(0)
    with pytest.raises(ValueError, match="no more"):
        run(Raises())
    partial = fxdebug.last_failed()
    assert partial is not None
    comparison = fxdebug.compare(run(model()), partial)
    assert [row.kind for row in comparison.findings] == ["raised"]
    assert "no more" in comparison.first.because
    line = Raises.forward.__code__.co_firstlineno + 2
    assert comparison.first.source.endswith(f"test_compare_traces.py:{line}")  # not where the model was called


def test_two_runs_that_raised_differ_where_each_raised_something_else():
    def partial(text: str) -> fxdebug.Trace:
        class Raises(Model):
            def forward(self, x):
                x = self.blocks[0](x)
                raise ValueError(text)

        torch.manual_seed(0)
        with pytest.raises(ValueError, match=text):
            run(Raises())
        trace = fxdebug.last_failed()
        assert trace is not None
        return trace

    one, same, other = partial("no more"), partial("no more"), partial("too much")
    assert fxdebug.compare(one, same).findings == ()
    (found,) = fxdebug.compare(one, other).findings
    assert (found.kind, found.because) == ("raised", "ValueError: no more in a, ValueError: too much in b")


def test_a_given_tolerance_counts_everywhere():
    comparison = changed(lambda other: other.blocks[0].up.weight.mul_(1.001), "tensors")
    assert not comparison.equal
    assert fxdebug.compare(comparison.a, comparison.b, tolerance=0.1).equal


def test_a_comparison_is_true_when_the_runs_are_equal():
    assert changed(lambda other: None)
    assert not changed(lambda other: other.head.bias.add_(1))


def test_every_kind_of_finding_is_explained():
    assert all(len(text) > 10 and not text.endswith(".") for text in KINDS.values())


def test_float32_against_bfloat16_is_judged_with_the_tolerance_of_bfloat16():
    one, other = model(), model().bfloat16()
    comparison = fxdebug.compare(run(one), run(other, X.bfloat16()))
    assert comparison.equal
    assert max(row.error for row in comparison.rows if row.verdict == "equal") > tolerance_of("float32")


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, -1.0, "much"])
def test_a_tolerance_that_is_no_relative_error_is_refused(tolerance: Any) -> None:
    trace = fx_debug(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(UsageError, match="is no relative error: give a number from 0 on"):
        compare(trace, trace, tolerance=tolerance)


def test_a_note_says_that_data_could_not_be_read(tmp_path: Path) -> None:
    model, x = nn.Identity(), torch.arange(200.0)
    fx_debug(model, x, values="tensors", save=tmp_path / "a")
    fx_debug(model, x.flip(0), values="tensors", save=tmp_path / "b")
    assert not compare(tmp_path / "a", tmp_path / "b").equal
    (shard,) = (tmp_path / "b").glob("*.safetensors")
    shard.write_bytes(b"")
    found = compare(tmp_path / "a", tmp_path / "b")
    (note,) = found.notes
    assert note.startswith("a value was compared by statistics, as the data could not be read: ")
    assert shard.name in note
    assert "no difference at all" not in str(found)


def test_runs_without_data_are_said_to_be_equal_by_statistics_only(tmp_path: Path) -> None:
    model, x = nn.Identity(), torch.cat([torch.zeros(1000), torch.ones(1000)])  # sums are exact in any order
    one, other = fx_debug(model, x, save=tmp_path / "a"), fx_debug(model, x.flip(0), save=tmp_path / "b")
    assert str(compare(one, other)).startswith("different")  # both models are there, and run again
    first, second = str(compare(tmp_path / "a", tmp_path / "b")).splitlines()[:2]
    assert first.startswith("equal within tolerance")
    assert second.startswith("no difference by statistics: a lower bound")
    kept = fx_debug(model, x, values="tensors")
    assert "no difference at all" in str(compare(kept, kept))


def test_shards_of_a_rank_are_told_where_the_other_run_does_not_hold_the_same(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    whole = fx_debug(model, torch.ones(2, 4), save=tmp_path)
    content = json.loads((tmp_path / "trace.json").read_text())
    place = content["values"]["columns"].index("sharding")

    def of_rank(rank: int) -> fxdebug.Trace:
        content["settings"] |= {"rank": rank, "world_size": 2}
        for row in content["values"]["rows"][-2:]:
            row[place] = [[2, 8], [8, 1], [2], None, ["S(1)"]]
        (tmp_path / "trace.json").write_text(json.dumps(content))
        return fxdebug.load(tmp_path)

    told = (
        "holds shards and partial sums of rank {} of 2 (2 tensors): they differ by nature from what the other run holds"
    )
    first, second = of_rank(0), of_rank(1)
    assert fxdebug.compare(whole, first).notes == (f"b {told.format(0)}",)
    assert fxdebug.compare(first, second).notes == (f"a {told.format(0)}", f"b {told.format(1)}")
    assert fxdebug.compare(first, first).notes == fxdebug.compare(whole, whole).notes == ()
