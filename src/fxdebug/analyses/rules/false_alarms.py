"""Counts of how often each rule alarmed where nothing was wrong, taken by ``tools/false_alarms.py``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Checks of healthy models and trainings: their number, those with an alarm of the rule, those with its advice."""

    checks: int
    alarms: int
    advice: int

    def __str__(self) -> str:
        """Return the rate; where nothing was seen, the one that it is below, 95 % sure (rule of three).

        >>> str(FalseAlarms(60, 0, 3)), str(FalseAlarms(60, 1, 0))
        ('0 of 60 (below 5 %)', '1 of 60')
        """
        bound = "" if self.alarms or not self.checks else f" (below {min(100, round(300 / self.checks, 1)):g} %)"
        return f"{self.alarms} of {self.checks}{bound}"


@cache
def false_alarms() -> dict[str, FalseAlarms]:
    """Return what was counted of each rule, by its id; rules that were not tried are missing."""
    text = resources.files("fxdebug.analyses.rules").joinpath("false_alarms.json").read_text(encoding="utf-8")
    return {id: FalseAlarms(*counts) for id, counts in json.loads(text).items()}
