"""Findings of several analyses: each fault is told once, in time that grows with their number."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fxdebug.analyses.rules.merged import merged
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import RULES
from fxdebug.data.findings import Finding
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
