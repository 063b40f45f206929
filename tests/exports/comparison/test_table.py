"""The rows of a comparison, and the table and JSON that have them all."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.comparison.result import Row
from fxdebug.exports.comparison.finding import distinguishable
from fxdebug.exports.comparison.table import COLUMNS
from support.planted import odd


def test_rows_stand_in_the_order_in_which_calls_returned(different):
    calls = [row.path for row in different.rows if row.op is None]
    assert calls[:5] == ["blocks.0.norm", "blocks.0.up", "blocks.0.down", "blocks.0", "blocks.1.norm"]
    assert calls[-3:] == ["final", "head", ""]
    positions = [row.position for row in different.rows]
    assert positions == sorted(positions)


def test_the_chain_leads_from_the_finding_to_the_outputs_and_not_into_calls(different):
    found = [row.path for row in different.chain()]
    assert found == ["blocks.1.norm", "blocks.1.up", "blocks.1.down", *[f"blocks.{i}" for i in range(1, 6)], "final", "head", ""]  # fmt: skip  # noqa: E501
    second = [row.path for row in different.chain(different.findings[1])]
    assert second == ["blocks.4.up", "blocks.4.down", "blocks.4", "blocks.5", "final", "head", ""]


def test_calls_around_a_finding_add_error_and_later_ones_inherit_it(different):
    verdicts = {row.path: row.verdict for row in different.rows if row.op is None}
    assert {path for path, verdict in verdicts.items() if verdict == "adds"} == {
        "", "blocks.1", "blocks.1.norm", "blocks.4", "blocks.4.up",
    }  # fmt: skip
    assert verdicts["blocks.0"] == "equal" and verdicts["blocks.3"] == "inherited"


def test_every_finding_is_among_the_rows_itself(different):
    assert len(different.findings) == 2
    assert all(any(row is found for row in different.rows) for found in different.findings)


def test_the_table_has_every_row_with_named_columns(different, tmp_path):
    with different.export(tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) == len(different.rows)
    first = next(row for row in rows if row["kind"])
    assert (first["verdict"], first["path"], first["op"], first["kind"]) == ("adds", "blocks.1.norm", "layer_norm", "constant")  # fmt: skip  # noqa: E501
    assert float(first["error"]) == different.first.error
    assert float(first["b_std"]) == different.first.b.value.stats.std
    assert first["b_shape"] == "2×5×8"


def test_the_json_is_strict_and_has_everything(tmp_path):
    found = odd("raised")
    data = json.loads(found.export(tmp_path / "x.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (data["format"], data["version"], data["equal"]) == ("fxdebug comparison", 1, False)
    assert len(data["rows"]) == len(found.rows)
    assert [data["rows"][i]["kind"] for i in data["findings"]] == [row.kind for row in found.findings]
    raised = next(row for row in data["rows"] if row["kind"] == "raised")
    assert raised["path"] == "1" and raised["error"] == {"float": "inf"}


def test_a_row_says_in_a_word_where_it_is(different):
    first = different.first
    assert isinstance(first, Row) and first.where == "blocks.1.norm/layer_norm"
    assert str(first).startswith("blocks.1.norm/layer_norm: adds constant, error 0.")


@pytest.mark.parametrize("a_has", [False, True])
@pytest.mark.parametrize("b_has", [False, True])
def test_measures_are_in_the_json_of_the_side_that_has_them_and_in_the_table_of_two_that_do(tmp_path, a_has, b_has):
    torch.manual_seed(0)
    plain = fxdebug.fx_debug(nn.Linear(2, 3), torch.ones(1, 2))
    taken = plain.with_measures(fxdebug.flops(plain))
    found = fxdebug.compare(taken if a_has else plain, taken if b_has else plain)
    data = json.loads(found.export(tmp_path / "x.json").read_text(encoding="utf-8"))
    numbers = {"flops": 12, "flops.self": 12, "flops.backward": 12}
    expected = {"a": numbers if a_has else {}, "b": numbers if b_has else {}}
    assert data["rows"][0].get("taken") == (expected if a_has or b_has else None)
    with found.export(tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert ("a_flops" in rows[0]) == ("b_flops" in rows[0]) == (a_has and b_has)
    if a_has and b_has:
        assert (rows[0]["a_flops"], rows[0]["b_flops.backward"]) == ("12", "12")


def test_numbers_are_told_apart_by_as_few_digits_as_do_and_by_no_more_than_are_allowed():
    assert distinguishable([1.00001, 1.00002], 6) == ["1.00001", "1.00002"]
    assert distinguishable([1.00001, 1.00002], 5) == ["1", "1"]
    assert distinguishable([1.0, None, 1.0], 6) == ["1", "", "1"]
    assert distinguishable([0.12341, 0.12349], 6) == ["0.1234", "0.1235"]
