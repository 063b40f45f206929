"""``tools/false_alarms.py``: a sample of its models, how it counts, and the numbers that the rules state."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from fxdebug.analyses.rules.false_alarms import FalseAlarms, false_alarms
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import PLUGINS, RULES
from fxdebug.data.findings import Finding
from fxdebug.exports.rules import rules_text

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
QUICK = ("numbers", "gradients", "weights", "attention", "activations")


@pytest.mark.parametrize("name", ["recurrent: rare events, GRU", "graph convolution"])
def test_false_alarms_finds_none_in_models_that_learned(tool: ModuleType, name: str) -> None:
    seen = list(tool.of_training(name, seed=5, analyses=QUICK))
    assert [str(f) for _, findings in seen for f in findings if f.severity != "advice"] == []
    assert {analysis for analysis, _ in seen} >= {"training", "numbers", "gradients", "weights", "activations"}


def test_false_alarms_refuses_a_model_that_did_not_learn(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="regression with tanh does not learn"):
        list(tool.of_training("regression with tanh", 0, steps=2))


def test_false_alarms_counts_each_rule_once_a_check(tool: ModuleType) -> None:
    def finding(rule: str, severity: str) -> Finding:
        return Finding(rule, severity, "", "#0", "", "")  # type: ignore[arg-type]

    seen = [
        ("activations", [finding("dead unit", "warning"), finding("dead unit", "warning")]),
        ("activations", [finding("dead unit", "advice")]),
        ("training", [finding("vanishing", "error"), finding("loss spike", "warning")]),
        ("gradients", []),
    ]
    counts = tool.count(seen)
    assert counts["activations.dead unit"] == [2, 1, 1] and counts["activations.saturated"] == [2, 0, 0]
    assert counts["gradients.vanishing"] == [2, 1, 0] and counts["training.loss spike"] == [1, 1, 0]
    assert "attention.padding seen" not in counts


def test_false_alarms_are_stated_of_every_rule(tool: ModuleType) -> None:
    counted = false_alarms()
    assert set(counted) == {id for id, rule in RULES.items() if rule.analysis != PLUGINS}  # those of others are theirs
    few = ("training", "attention")
    assert all(one.checks >= (10 if RULES[id].analysis in few else 50) for id, one in counted.items())
    assert [id for id, one in counted.items() if one.alarms] == []
    table = tool.table({id: (one.checks, one.alarms, one.advice) for id, one in counted.items()})
    assert f"<!-- rules -->\n\n{table}\n\n<!-- /rules -->" in PAGE
    assert "false alarms: 0 of " in rules_text(RuleSettings(), width=100)


def test_false_alarms_of_a_rule_have_a_bound_where_there_were_none() -> None:
    assert [str(FalseAlarms(*counts)) for counts in ((30, 0, 2), (30, 2, 0), (2, 0, 0))] == [
        "0 of 30 (below 10 %)", "2 of 30", "0 of 2 (below 100 %)",
    ]  # fmt: skip
