"""``report.compare``: row P9 of the analyses."""

from __future__ import annotations

import time
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.analyses.cost.changes import ChangeLimits, changes
from fxdebug.data.report import ReportData
from fxdebug.features.profile.report import CALL_COLUMNS, ProfileRow
from support.clocks import busy_machine, profiled_by


def net(width: int = 32, layers: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


X = torch.ones(8, 32)


def timed(model: nn.Module, x: torch.Tensor = X) -> Any:
    with torch.no_grad():
        return fxdebug.profile(model, x, repeats=8, warmup=1, peak=False)


def slowed(model: nn.Sequential, position: int) -> nn.Sequential:
    forward = model[position].forward

    def sleeping(*args: Any) -> Any:
        time.sleep(0.03)
        return forward(*args)

    model[position].forward = sleeping
    return model


@pytest.mark.parametrize("seed", range(5))
def test_p9_the_same_model_twice_has_no_finding_in_twenty_tries(seed: int) -> None:
    model = net()
    with profiled_by(busy_machine(seed)):
        first = timed(model)
        assert [str(finding) for _ in range(20) for finding in timed(model).compare(first).findings] == []


@pytest.mark.parametrize("seed", range(5))
def test_p9_a_sleep_is_named_and_nothing_else(tmp_path: Path, seed: int) -> None:
    with profiled_by(busy_machine(seed)):
        before = timed(net()).json(tmp_path / "before.json")
        change = timed(slowed(net(), 3)).compare(before)
    assert [(finding.rule, finding.path) for finding in change.findings] == [("slower", "3")]
    row = change.rows[0]
    assert (row.call, row.change) == ("3#0", "slower") and row.after - row.before >= 0.029
    assert change.totals["calls compared"] == (7, "")


def profile_of(times: dict[str, tuple[float, float, float]], model: str = "Net") -> ReportData[ProfileRow]:
    """A profile with calls by name: quartiles and median of their self times, in ms."""
    rows = []
    for call, (low, mid, high) in times.items():
        facts: dict[str, Any] = dict.fromkeys([column.field for column in CALL_COLUMNS])
        facts |= {"call": f"{call}#0", "type": "Linear", "median": mid / 1e3, "low": low / 1e3, "high": high / 1e3}
        rows.append(ProfileRow(**facts))
    whole = sum(mid for _, mid, _ in times.values()) / 1e3
    return ReportData("profile", model, CALL_COLUMNS, tuple(rows), totals={"forward": (whole, "s")})


STEADY = {f"l.{i}": (0.9, 1.0, 1.1) for i in range(8)}


@pytest.mark.parametrize(
    "after, changed",
    [
        ({}, {}),
        ({"l.3": (1.9, 2.0, 2.1)}, {"l.3#0": "slower"}),
        ({"l.3": (1.05, 2.0, 2.1)}, {}),  # the quartiles overlap
        ({"l.3": (1.3, 2.0, 2.7)}, {}),  # they do not, and the repeats spread further than they are apart
        ({"l.3": (1.35, 1.4, 1.45)}, {}),  # no further from those before than these are from one another
        ({"l.3": (1.11, 1.09, 1.12)}, {}),  # less than a tenth
        ({"l.3": (0.45, 0.5, 0.55)}, {"l.3#0": "faster"}),
        (dict.fromkeys(STEADY, (1.8, 2.0, 2.2)), {}),  # the machine
        (dict.fromkeys(STEADY, (1.8, 2.0, 2.2)) | {"l.5": (5.9, 6.0, 6.1)}, {"l.5#0": "slower"}),
    ],
)
def test_p9_a_change_needs_a_ratio_and_repeats_apart_beyond_what_the_machine_explains(
    after: dict[str, tuple[float, float, float]], changed: dict[str, str]
) -> None:
    change: Any = changes(profile_of(STEADY), profile_of(STEADY | after), ChangeLimits())
    assert {row.call: row.change for row in change.rows if row.change} == changed
    assert len(change.findings) == sum(kind == "slower" for kind in changed.values())
    assert bool(change.notes) == (len(after) == len(STEADY))


def test_p9_of_fewer_than_five_calls_the_machine_is_not_told() -> None:
    def slower(count: int) -> list[str]:
        before = {f"l.{i}": (0.9, 1.0, 1.1) for i in range(count)}
        change: Any = changes(profile_of(before), profile_of(dict.fromkeys(before, (1.8, 2.0, 2.2))), ChangeLimits())
        return [row.change for row in change.rows]

    assert slower(5) == [""] * 5 and slower(4) == ["slower"] * 4


def test_p9_a_call_whose_time_is_not_known_has_its_row_and_no_ratio() -> None:
    before, after = profile_of(STEADY), profile_of(STEADY | {"l.0": (1.9, 2.0, 2.1)})
    unknown = replace(before, rows=(replace(before.rows[0], median=None), *before.rows[1:]))
    change: Any = changes(unknown, after, ChangeLimits())
    (row,) = [row for row in change.rows if row.call == "l.0#0"]
    assert astuple(row) == ("l.0#0", "Linear", None, 0.002, None, "")
    assert change.totals["calls compared"] == (7, "") and change.totals["ratio"] == (pytest.approx(9 / 8), "")


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({}, {"least": 1.85e-3}, "slower"),
        ({"least": 0.85e-3}, {"least": 1.85e-3}, "slower"),
        ({"least": 0.85e-3}, {"least": 0.87e-3}, ""),  # the fastest repeats are as fast as before
        ({"least": 0.85e-3}, {"least": 1.05e-3}, ""),  # and reach into the repeats before
        ({"low": None}, {}, ""),
        ({}, {"high": None}, ""),
    ],
)
def test_p9_the_fastest_repeats_say_the_same_and_quartiles_are_known(
    before: dict[str, float | None], after: dict[str, float | None], change: str
) -> None:
    old, new = profile_of(STEADY), profile_of(STEADY | {"l.0": (1.9, 2.0, 2.1)})
    sides = [
        replace(one, rows=(replace(one.rows[0], **facts), *one.rows[1:]))
        for one, facts in ((old, before), (new, after))
    ]
    found: Any = changes(*sides, ChangeLimits())
    assert {row.call: row.change for row in found.rows}["l.0#0"] == change


def test_p9_a_change_below_a_hundredth_of_the_run_is_no_finding() -> None:
    small = STEADY | {"tiny": (0.009, 0.010, 0.011)}
    grown = STEADY | {"tiny": (0.029, 0.030, 0.031)}
    assert not changes(profile_of(small), profile_of(grown), ChangeLimits()).findings
    assert changes(profile_of(small), profile_of(grown), ChangeLimits(share=0.1)).findings


def test_p9_renamed_and_missing_layers_are_listed() -> None:
    before = profile_of({"Old": (0.9, 1, 1.1), "a": (0.9, 1, 1.1), "b": (0.9, 1, 1.1)}, "Old")
    after = profile_of({"New": (0.9, 1, 1.1), "a": (0.9, 1, 1.1), "c": (0.9, 1, 1.1)}, "New")
    change: Any = changes(before, after, ChangeLimits())
    assert {row.call: row.change for row in change.rows} == {
        "Old#0": "", "a#0": "", "b#0": "only before", "c#0": "only after",
    }  # fmt: skip
    assert [note.what for note in change.notes] == ["only before: b#0", "only after: c#0"]


def test_other_reports_list_the_numbers_that_differ() -> None:
    before, after = (fxdebug.memory(net(layers=2), torch.ones(batch, 32)) for batch in (2, 4))
    change = after.compare(before)
    assert change.analysis == "change of memory" and not change.findings
    assert ("1#0", "outputs", "256 B", "512 B", 100.0) in [
        (r.row, r.column, r.was, r.now, r.change) for r in change.rows
    ]
    assert after.compare(after).rows == ()


def test_reports_of_different_analyses_are_not_compared() -> None:
    model = net(layers=1)
    with pytest.raises(fxdebug.UsageError, match="a report of summary and one of memory"):
        fxdebug.memory(model, X).compare(fxdebug.summary(model, X))


def test_settings_that_differ_are_noted() -> None:
    model = net(layers=1)
    change = fxdebug.memory(model, X, steps=2).compare(fxdebug.memory(model, X))
    assert "steps was 1 before, and is 2 after" in [note.what for note in change.notes]
