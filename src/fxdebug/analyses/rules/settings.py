"""Rules that are off, and thresholds that are set: by keyword, on the command line, or in ``pyproject.toml``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fxdebug.analyses.rules.table import LIMITS, THRESHOLDS, TRAINING, every_rule, rule_of
from fxdebug.data.findings import SEVERITIES, Finding
from fxdebug.data.report import Cell
from fxdebug.errors import UsageError, nearest

NEVER = "never"


@dataclass(frozen=True)
class RuleSettings:
    """The rules that are off, by id, and the thresholds that are not the default, by name.

    ``file`` is the ``pyproject.toml`` that some of them come from.
    """

    off: frozenset[str] = frozenset()
    limits: Mapping[str, float] = field(default_factory=dict)
    file: str = ""

    def over(self, other: RuleSettings) -> RuleSettings:
        """Return both, where a threshold that both set is that of this one."""
        return RuleSettings(self.off | other.off, {**other.limits, **self.limits}, self.file or other.file)

    def limits_of(self, analysis: str) -> Any:
        """Return the ``Limits`` of an analysis, or ``None`` where it has none."""
        if analysis not in LIMITS:
            return None
        chosen = {name.partition(".")[2]: number for name, number in self.limits.items() if _is_of(name, analysis)}
        defaults = LIMITS[analysis]()
        return replace(defaults, **{name: type(getattr(defaults, name))(number) for name, number in chosen.items()})

    def cells(self) -> dict[str, Cell]:
        """Return what differs from the defaults, for the settings of a report."""
        off: dict[str, Cell] = {"off": ", ".join(sorted(self.off))} if self.off else {}
        return {**off, **dict(sorted(self.limits.items())), **({"config": self.file} if self.file else {})}


def _is_of(name: str, analysis: str) -> bool:
    return name.partition(".")[0] == analysis


def settings_of(off: Iterable[str], limits: Mapping[str, object], where: str, file: str = "") -> RuleSettings:
    """Return settings from names and numbers that somebody wrote; ``where`` names the place in errors.

    A rule is named with its analysis, or without for all rules of this name. Raises ``UsageError`` with the nearest
    name for an unknown one, and for a threshold that is no number of at least 0.

    >>> sorted(settings_of(["dead unit"], {"attention.leak": 1e-4}, "off").off)
    ['activations.dead unit', 'weights.dead unit']
    """
    if isinstance(off, str):
        raise UsageError(f"{where}: off={off!r} is one text: give a list of rules, off=[{off!r}]")
    thresholds = {name: _threshold(name, number, where) for name, number in limits.items()}
    return RuleSettings(rules_named(off, where), thresholds, file)


def rules_named(names: Iterable[object], where: str) -> frozenset[str]:
    """Return the ids of rules by their name, or by their analysis and name; ``where`` names the place in errors.

    Raises ``UsageError`` with the nearest name for an unknown one.
    """
    return frozenset(id for name in names for id in _rules_named(name, where))


def fails(findings: Iterable[Finding], asked: str, analysis: str = "") -> bool:
    """Is there a finding that must not be there? ``asked`` names severities and rules, with commas.

    A severity stands for itself and the graver ones; ``never`` for none. ``analysis`` made the findings that do not
    name one. Raises ``UsageError`` for a name that is neither.

    >>> found = [Finding("frozen", "advice", "encoder", "encoder#0", "", "", analysis="gradients")]
    >>> fails(found, "warning"), fails(found, "warning,frozen"), fails(found, "advice")
    (False, True, True)
    """
    names = [name.strip() for name in asked.split(",")]
    ids = rules_named([name for name in names if name not in (*SEVERITIES, NEVER)], "--fail-on")
    least = max([SEVERITIES.index(name) for name in names if name in SEVERITIES], default=-1)
    for finding in findings:
        analyses = (finding.analysis or analysis).split(", ")
        made_by = [rule_of(one, finding.rule) or rule_of(TRAINING, finding.rule) for one in analyses]
        if SEVERITIES.index(finding.severity) <= least or ids & {rule.id for rule in made_by if rule is not None}:
            return True
    return False


def _rules_named(name: object, where: str) -> list[str]:
    rules = every_rule()
    found = [rule.id for rule in rules.values() if name in (rule.id, rule.name)]
    if not found:
        known = (*rules, *(rule.name for rule in rules.values()))
        near = nearest(str(name), dict.fromkeys(known))
        raise UsageError(f"{where}: no rule {name!r}.{near or ' `fxdebug rules` lists them.'}")
    return found


def _threshold(name: str, number: object, where: str) -> float:
    known = THRESHOLDS.get(name)
    if known is None:
        near = nearest(name, [one.name for one in THRESHOLDS.values() if one.settable])
        raise UsageError(f"{where}: no threshold {name!r}.{near or ' `fxdebug rules` lists them.'}")
    if not known.settable:
        raise UsageError(f"{where}: {name} cannot be set: it is part of the method. A rule can be off as a whole.")
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
        raise UsageError(f"{where}: {name} = {number!r} is no number of at least 0")
    if isinstance(known.default, int) and number != int(number):
        raise UsageError(f"{where}: {name} = {number!r} is no whole number")
    return number
