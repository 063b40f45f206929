"""Rules that are off and thresholds that are set: two sources together, refusals, and what makes a command fail."""

from __future__ import annotations

import math

import pytest

from fxdebug.analyses.rules.settings import RuleSettings, fails, settings_of
from fxdebug.data.findings import Finding
from fxdebug.errors import UsageError


def a_finding(rule: str = "frozen", severity: str = "advice", analysis: str = "") -> Finding:
    return Finding(rule=rule, severity=severity, path="encoder", call="encoder#0", op="", what="", analysis=analysis)  # type: ignore[arg-type]


def test_settings_over_others_keep_the_rules_of_both_and_the_own_thresholds() -> None:
    own = settings_of(["dead unit"], {"activations.massive": 200}, "here")
    file = settings_of(["frozen"], {"activations.massive": 300, "attention.leak": 0.5}, "there", "pyproject.toml")
    both = own.over(file)
    assert both.off == own.off | file.off
    assert both.limits == {"activations.massive": 200, "attention.leak": 0.5}
    assert both.file == "pyproject.toml" and file.over(RuleSettings(file="other")).file == "pyproject.toml"


def test_the_cells_of_a_report_have_what_differs_from_the_defaults() -> None:
    assert RuleSettings().cells() == {}
    settings = settings_of(["attention.unused head"], {"attention.leak": 0.5}, "here", "pyproject.toml")
    assert settings.cells() == {"off": "attention.unused head", "attention.leak": 0.5, "config": "pyproject.toml"}


@pytest.mark.parametrize("number", [True, "1", -0.5, math.inf, math.nan, None])
def test_a_threshold_that_is_no_number_of_at_least_0_is_refused(number: object) -> None:
    with pytest.raises(UsageError, match=r"attention\.leak = .* is no number of at least 0"):
        settings_of([], {"attention.leak": number}, "here")


def test_a_threshold_may_be_0_and_one_of_whole_numbers_takes_no_others() -> None:
    assert settings_of([], {"attention.leak": 0}, "here").limits == {"attention.leak": 0}
    with pytest.raises(UsageError, match=r"activations\.samples = 1\.5 is no whole number"):
        settings_of([], {"activations.samples": 1.5}, "here")


@pytest.mark.parametrize(
    ("found", "asked", "analysis", "failed"),
    [
        ([a_finding(severity="error")], "warning", "", True),
        ([a_finding(severity="warning")], "warning", "", True),
        ([a_finding(severity="advice")], "warning", "", False),
        ([a_finding(severity="error")], "never", "", False),
        ([], "advice", "", False),
        ([a_finding(analysis="gradients")], "gradients.frozen", "", True),
        ([a_finding()], "gradients.frozen", "gradients", True),
        ([a_finding(analysis="gradients")], "gradients.frozen", "weights", True),
        ([a_finding("dead unit", analysis="weights, activations")], "activations.dead unit", "", True),
        ([a_finding("dead unit", analysis="weights")], "activations.dead unit", "", False),
        ([a_finding("stalled", analysis="nothing")], "gradients.frozen", "", False),
    ],
)
def test_a_command_fails_for_the_severities_and_the_rules_that_are_asked_for(
    found: list[Finding], asked: str, analysis: str, failed: bool
) -> None:
    assert fails(found, asked, analysis) is failed
