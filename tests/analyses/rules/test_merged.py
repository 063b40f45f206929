"""Findings of several analyses: each fault is told once, in time that grows with their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fxdebug.analyses.numbers.findings import Checked, findings_report
from fxdebug.analyses.rules.merged import Done, merged, merged_report
from fxdebug.analyses.rules.settings import RuleSettings, settings_of
from fxdebug.analyses.rules.table import RULES
from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import UsageError
from support.counted import calls_of


def found(analysis: str, rule: str, path: str, what: str = "it is so") -> tuple[str, list[Finding]]:
    return analysis, [Finding(rule=rule, severity="warning", path=path, call=f"{path}#0", op="Linear", what=what)]


def rules_of_one_subject() -> list[tuple[str, str]]:
    """Return the analysis and the name of two rules of different analyses that have one subject."""
    by_subject: dict[str, dict[str, str]] = {}
    for rule in RULES.values():
        if rule.subject:
            by_subject.setdefault(rule.subject, {}).setdefault(rule.analysis, rule.name)
    return next(list(rules.items())[:2] for rules in by_subject.values() if len(rules) > 1)


@pytest.mark.parametrize(
    "paths, told",
    [
        (("a", "a"), [("a", "both")]),
        (("a", "b"), [("a", "first"), ("b", "second")]),
        (("a", "a", "b"), [("a", "both"), ("b", "first")]),
    ],
)
def test_what_two_analyses_tell_of_one_place_is_told_once(paths: Sequence[str], told: list[tuple[str, str]]) -> None:
    rules = rules_of_one_subject()
    names = {"first": rules[0][0], "second": rules[1][0], "both": f"{rules[0][0]}, {rules[1][0]}"}
    kept = merged([found(*rules[i % 2], path) for i, path in enumerate(paths)], RuleSettings())
    assert [(finding.path, finding.analysis) for finding in kept] == [(path, names[by]) for path, by in told]


def test_findings_of_one_analysis_are_never_one() -> None:
    rule = rules_of_one_subject()[0]
    assert len(merged([found(*rule, "a"), found(*rule, "a")], RuleSettings())) == 2


def test_the_work_grows_with_the_number_of_findings() -> None:
    def work(count: int) -> int:
        findings = [finding for i in range(count) for finding in found("numbers", "nan", f"layer{i}")[1]]
        return calls_of(lambda: merged([("numbers", findings)], RuleSettings()))

    assert work(800) < 8.8 * work(100)


def a_report(analysis: str, *notes: Note, rows: tuple[int, ...] = (), answer: str = "") -> ReportData[Any]:
    columns = (Column("id", "parameter"), Column("size", "size"))
    return ReportData(analysis, "Net", columns, rows, notes=notes, answer=answer)


def test_an_analysis_is_done_or_there_is_a_reason_why_not() -> None:
    done = Done()

    def refuses() -> ReportData[Any]:
        raise UsageError("give a loss")

    def breaks() -> ReportData[Any]:
        raise ValueError("no data\nof this kind")

    done.ask("weights", lambda: a_report("weights"))
    done.ask("gradients", refuses)
    done.ask("state", breaks, (ValueError,))
    done.ask("structure", lambda: "a text")  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="no data"):
        done.ask("attention", breaks)
    assert list(done.reports) == ["weights"] and done.failed == {"state"}
    assert done.reasons == {
        "gradients": "give a loss",
        "state": "it raised ValueError: no data",
        "structure": "it returned str, not a report",
    }


def test_a_report_without_rows_whose_note_says_why_is_of_an_analysis_that_was_not_done() -> None:
    why = Note("no attention was recorded")
    done = Done({
        "numbers": a_report("numbers", why),
        "attention": a_report("attention", why, Note("and more")),
        "weights": a_report("weights", why, rows=(1,)),
        "activations": a_report("activations"),
        "state": replace(a_report("state", why), findings=tuple(found("state", "shared", "a")[1])),
        "structure": replace(a_report("structure", why), columns=()),
    })  # fmt: skip
    done.leave_out_empty()
    assert list(done.reports) == ["numbers", "weights", "activations", "state", "structure"]
    assert done.reasons == {"attention": "no attention was recorded"}


def test_the_report_of_check_says_what_was_done_and_what_was_not() -> None:
    numbers = findings_report("Net", found("numbers", "nan", "b")[1], Checked(7, 3, 1, ("it was short",)), {})
    of_column, of_layer, of_all = Note("by blocks", "size"), Note("not trained", "a.weight"), Note("of one step")
    done = Done(
        {
            "weights": a_report("weights", of_column, of_layer, of_all, of_all, answer="all learn"),
            "numbers": numbers,
        },
        {"attention": "no tensors", "activations": "no tensors", "gradients": "it raised E: no"},
        {"gradients"},
    )
    report = merged_report("Net", done, settings_of([], {"attention.leak": 0.5}, "here"), {"loss": "mean"}, 9)
    assert [(note.where, note.what) for note in report.notes] == [
        ("", "it was short"),
        ("", "Checked: numbers, weights."),
        ("", "Not checked: gradients (it raised E: no)."),
        ("", "Not checked: attention, activations (no tensors)."),
        ("weights: a.weight", "not trained"),
        ("weights", "of one step"),
    ]
    assert [(one.analysis, one.rule, one.path) for one in report.findings] == [
        ("numbers", "nan", "b"),
        ("gradients", "not looked at", ""),
    ]
    assert report.answer == "all learn"
    assert dict(report.settings) == {"loss": "mean", "analyses": "numbers, weights", "attention.leak": 0.5}
    assert [number for number, _ in report.totals.values()] == [7, 3, 1]


def test_the_report_of_check_without_numbers_has_the_calls_that_it_is_given() -> None:
    report = merged_report("Net", Done(), RuleSettings(), {}, 9)
    assert ([number for number, _ in report.totals.values()], report.notes) == ([0, 9, 0], ())
