"""Lines of reports on a screen: in the report's own order, with sums that say what is missing in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.data.report import Cell, Column, ReportData, Shared
from fxdebug.exports.report import html
from fxdebug.exports.report.text import folded, lines_of, screen, total_text


@dataclass(frozen=True)
class Row:
    call: str
    count: int
    size: float | None
    gap: str = ""


COLUMNS = (
    Column("call", "call"),
    Column("count", "count", adds=True),
    Column("size", "size", "B", adds=True, at_least="gap"),
    Column("gap", "not counted"),
)


def report(*rows: Row, **more: Any) -> ReportData[Row]:
    return ReportData("sizes", "Net", COLUMNS, rows, **more)


def sizes(made: ReportData[Row]) -> list[tuple[Cell, Cell]]:
    return [(line["call"], line["size"]) for line in folded(made)]


MANY = (
    Row("head#0", 1, 30.0),
    Row("h.0#0", 9, 10.0),
    Row("h.1#0", 9, 10.0),
    Row("h.2#0", 9, None),
    Row("x#0", 5, None),
)


def test_lines_are_in_the_order_of_the_report_not_of_the_first_column_that_adds() -> None:
    assert sizes(report(*MANY, ranked_by=("size",))) == [("head", 30.0), ("h.0…2 ×3", 20.0), ("x", None)]
    assert sizes(report(*MANY)) == [("head", 30.0), ("h.0…2 ×3", 20.0), ("x", None)]
    more = (Row("head#0", 1, 15.0), *MANY[1:])
    assert sizes(report(*more, ranked_by=("size",)))[0] == ("h.0…2 ×3", 20.0)


def test_a_sum_in_which_a_number_is_missing_is_a_lower_bound_and_a_line_of_unknown_stays() -> None:
    rows = (*MANY, Row("y#0", 0, 0.0), Row("z#0", 2, 4.0, "svd"))
    text = screen(report(*rows, totals={"all": (54, "B"), "calls": (12345, "")}, at_least=("all",)), width=80)
    assert text.splitlines() == [
        "sizes of Net",
        "all    at least 54 B",
        "calls  12,345",
        "call     count   size not counted",
        "head         1   30 B",
        "h.0…2 ×3    27 ≥ 20 B",
        "x            5    n/a",
        "z            2  ≥ 4 B svd",
    ]


def test_what_rows_share_counts_once_in_their_line() -> None:
    shared = Shared({"h.0#0": (0, 1), "h.1#0": (0, 2), "h.2#0": (0, 1)}, {"size": (5.0, 1.0, 2.0, 90.0)})
    assert sizes(report(*MANY, shared=shared))[1] == ("h.0…2 ×3", 8.0)


def test_calls_of_one_module_are_named_by_its_path() -> None:
    rows = [Row(f"cell#{i}", 1, 1.0) for i in range(3)]
    assert sizes(report(*rows)) == [("cell ×3", 3.0)]


def test_a_page_has_the_lines_of_the_screen_and_folds_only_what_folds() -> None:
    made = report(*MANY, totals={"all": (12345, "")}, at_least=("all",))
    part = html.page_part(made)
    assert "≥ 20 B" in part and "at least 12,345" in part and total_text(made, "all") == "at least 12,345"
    plain = report(*MANY, folds=False)
    assert [line["call"] for line in lines_of(plain)] == ["head", "h.0", "h.1", "h.2", "x"]
    assert "h.0…2" not in html.page_part(plain)
    assert [line["call"] for line in lines_of(plain, everything=True)] == [row.call for row in MANY]


def test_a_page_says_how_much_it_leaves_out_and_one_in_a_file_leaves_nothing_out() -> None:
    rows = [Row(f"{chr(97 + i // 26)}{chr(97 + i % 26)}#0", 100 - i, 1.0) for i in range(90)]
    found = [Finding("rule", "advice", str(i), f"{i}#0", "op", "is so") for i in range(30)]
    made = report(*rows, notes=[Note("no number", str(i)) for i in range(70)], findings=found)
    part, page = html.page_part(made), html.report_page(made)
    assert re.findall("and .*? more [a-z]+", part) == ["and 50 more lines", "and 10 more findings", "and 30 more notes"]
    assert [part.count(each) for each in ("<tr>", "<pre", 'class="note"')] == [1 + 40, 20, 40]
    assert [page.count(each) for each in ("<tr>", "<pre", 'class="note"', " more ")] == [1 + 90, 30, 70, 0]


def test_on_a_narrow_screen_texts_are_cut_then_columns_left_out_and_no_number_is_cut() -> None:
    made = report(Row("encoder.layers.0.attention.out#0", 1, 2.0, "a reason that is long"), Row("head#0", 3, 4.0))
    assert screen(made, width=80).splitlines() == [
        "sizes of Net",
        "call                           count  size not counted",
        "encoder.layers.0.attention.out     1 ≥ 2 B a reason that is long",
        "head                               3   4 B",
    ]
    assert screen(made, width=50).splitlines() == [
        "sizes of Net",
        "call                   count  size not counted",
        "encoder….attention.out     1 ≥ 2 B a reason that…",
        "head                       3   4 B",
    ]
    assert screen(made, width=30).splitlines() == [
        "sizes of Net",
        "call              count  size",
        "encod…tention.out     1 ≥ 2 B",
        "head                  3   4 B",
        "no room in 30 columns for not",
        "counted",
    ]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = self.dropout(layer(x)) + 1
        return x


@pytest.mark.parametrize("analysis", ["profile", "memory", "flops"])
def test_the_reports_on_costs_are_ranked_by_what_they_measure(analysis: str) -> None:
    ids = torch.zeros(2, 3, dtype=torch.long)
    made: ReportData[Any] = {
        "profile": lambda: fxdebug.profile(Net(), ids, repeats=2, warmup=0, peak=False),
        "memory": lambda: fxdebug.memory(Net(), ids),
        "flops": lambda: fxdebug.flops(Net(), ids),
    }[analysis]()
    for one in (made, *made.parts):
        if one.rows and one.ranked_by:
            for lines in (folded(one), [one.cells(row) for row in one.rows]):
                keys = [sum(float(line[field] or 0) for field in one.ranked_by) for line in lines]
                assert keys == sorted(keys, reverse=True)
    assert made.ranked_by and all(part.ranked_by for part in made.parts if part.columns[0].field != "label")
