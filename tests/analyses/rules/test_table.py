"""The table of rules: whole, without a number of its own, and its text fits a terminal."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields

import pytest

from fxdebug.analyses.rules.settings import RuleSettings, settings_of
from fxdebug.analyses.rules.table import ANALYSES, LIMITS, PLUGINS, RULES, THRESHOLDS
from fxdebug.data.findings import NOT_LOOKED_AT
from fxdebug.exports.rules import rules_csv, rules_json, rules_text


def test_every_threshold_is_a_field_of_the_limits_with_its_default() -> None:
    settable = {name: threshold.default for name, threshold in THRESHOLDS.items() if threshold.settable}
    of_fields = {f"{name}.{each.name}": each.default for name, kind in LIMITS.items() for each in fields(kind)}
    assert settable == of_fields


def test_every_rule_names_thresholds_that_there_are() -> None:
    assert {name for rule in RULES.values() for name in rule.thresholds} <= set(THRESHOLDS)
    assert {rule.analysis for rule in RULES.values()} == set(ANALYSES)
    assert {rule.name for rule in RULES.values() if rule.analysis == PLUGINS} == {NOT_LOOKED_AT}


def test_limits_of_an_analysis_have_the_types_of_their_fields() -> None:
    settings = settings_of([], {"activations.samples": 10.0, "attention.leak": 1}, "here")
    limits = settings.limits_of("activations")
    assert limits.samples == 10 and isinstance(limits.samples, int) and limits.outlier == 10.0
    assert isinstance(settings.limits_of("attention").leak, float)
    assert settings.limits_of("shadow") is None


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_list_fits_its_width_and_has_every_rule(width: int) -> None:
    settings = settings_of(["dead unit"], {"activations.massive": 200}, "here", "pyproject.toml")
    text = rules_text(settings, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert all(f"  {rule.name} " in text for rule in RULES.values())
    assert "activations.massive = 200 (default 100)" in text
    assert text.count("  off      ") == 2 and text.endswith("In force: pyproject.toml")


def test_the_list_as_json_and_csv_has_numbers_in_force() -> None:
    settings = settings_of(["attention.unused head"], {"attention.unused": 0.5}, "here")
    listed = json.loads(rules_json(settings))
    (rule,) = [rule for rule in listed["rules"] if rule["rule"] == "unused head"]
    assert listed["schema"] == "fxdebug.rules/1" and not rule["on"]
    (threshold,) = rule["thresholds"]
    assert (threshold["name"], threshold["value"], threshold["default"]) == ("attention.unused", 0.5, 1e-5)
    rows = list(csv.DictReader(io.StringIO(rules_csv(RuleSettings()))))
    (precision,) = [row for row in rows if row["rule"] == "precision"]
    assert len(rows) == len(RULES) and precision["thresholds"] == "shadow.roundings=256 shadow.growth=32"
