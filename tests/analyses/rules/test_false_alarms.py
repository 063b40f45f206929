"""Counts of false alarms: they cannot be changed, and are of rules that there are."""

from __future__ import annotations

import dataclasses

import pytest

from fxdebug.analyses.rules.false_alarms import FalseAlarms, false_alarms
from fxdebug.analyses.rules.table import every_rule


def test_counts_are_of_rules_that_there_are_and_no_larger_than_their_checks() -> None:
    counts = false_alarms()
    assert counts and set(counts) <= set(every_rule())
    assert [id for id, one in counts.items() if not 0 <= one.alarms + one.advice <= 2 * one.checks] == []


def test_a_count_is_frozen_and_small() -> None:
    count = FalseAlarms(60, 1, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        count.alarms = 2  # type: ignore[misc]
    assert not hasattr(count, "__dict__")
    assert [str(FalseAlarms(checks, 0, 0)) for checks in (0, 1, 60)] == [
        "0 of 0",
        "0 of 1 (below 100 %)",
        "0 of 60 (below 5 %)",
    ]
