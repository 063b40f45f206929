"""The list of rules as text, JSON and CSV: analysis, name, severity, meaning, thresholds in force."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fxdebug.analyses.rules.false_alarms import false_alarms
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import ANALYSES, ASKED_FOR, THRESHOLDS, every_rule
from fxdebug.cells import wrapped
from fxdebug.data.measures import quantity
from fxdebug.data.rules import Rule, Threshold
from fxdebug.exports.records import SCHEMAS, csv_text
from fxdebug.printable import printable, printable_json

_HEADS = ("rule", "analysis", "severity", "on", "about", "thresholds", "false_alarms")


def rules_text(settings: RuleSettings, *, width: int | None = None) -> str:
    """Return every rule with its thresholds under the analysis that it belongs to."""
    width = shutil.get_terminal_size().columns if width is None else width
    rules = every_rule().values()
    size = max(len(rule.name) for rule in rules)
    lines: list[str] = []
    for analysis in [name for name in ANALYSES if any(rule.analysis == name for rule in rules)]:
        asked = f", only with analyses=[{analysis!r}]" if analysis in ASKED_FOR else ""
        lines += ["", f"{analysis}{asked}"] if lines else [f"{analysis}{asked}"]
        for rule in (rule for rule in rules if rule.analysis == analysis):
            state = "off" if rule.id in settings.off else rule.severity
            first = f"  {rule.name:<{size}}  {state:<7}  "
            lines += wrapped(f"{first}{rule.about}", width, further=" " * len(first))
            counted = false_alarms().get(rule.id)
            if counted is not None:
                lines += wrapped(f"      false alarms: {counted} checks of healthy models", width, further=" " * 8)
            for name in rule.thresholds:
                indent = " " * 6
                lines += wrapped(f"{indent}{_told(THRESHOLDS[name], settings)}", width, further=f"{indent}  ")
    lines += ["", *wrapped(f"Switch rules off and set thresholds in pyproject.toml: {_EXAMPLE}.", width)]
    return "\n".join([*lines, *(wrapped(f"In force: {printable(settings.file)}", width) if settings.file else [])])


_EXAMPLE = "[tool.fxdebug] off = ['dead unit'], [tool.fxdebug.limits] activations.massive = 200"


def _told(threshold: Threshold, settings: RuleSettings) -> str:
    value = settings.limits.get(threshold.name, threshold.default)
    was = f" (default {quantity(threshold.default, threshold.unit)})" if value != threshold.default else ""
    source = f"; {threshold.source}" if threshold.source else ""
    fixed = "" if threshold.settable else "; fixed"
    return f"{threshold.name} = {quantity(value, threshold.unit)}{was}: {threshold.about}{source}{fixed}"


def rules_json(settings: RuleSettings) -> str:
    """Return every rule and its thresholds as JSON."""
    rules = [dict(zip(_HEADS, _row(rule, settings))) for rule in every_rule().values()]
    found = {"schema": SCHEMAS["rules"], "config": settings.file, "rules": rules}
    return printable_json(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))


def rules_csv(settings: RuleSettings) -> str:
    """Return every rule as CSV, its thresholds as ``name=number``."""
    counts = false_alarms()
    rows = [
        [*_row(rule, settings)[:-2], " ".join(_pairs(rule, settings)), counts.get(rule.id, "")]
        for rule in every_rule().values()
    ]
    return csv_text(_HEADS, rows)


def _pairs(rule: Rule, settings: RuleSettings) -> Iterable[str]:
    return (f"{name}={settings.limits.get(name, THRESHOLDS[name].default):g}" for name in rule.thresholds)


def _row(rule: Rule, settings: RuleSettings) -> list[Any]:
    thresholds = [_threshold(THRESHOLDS[name], settings) for name in rule.thresholds]
    counted = false_alarms().get(rule.id)
    alarms = None if counted is None else asdict(counted)
    return [rule.name, rule.analysis, rule.severity, rule.id not in settings.off, rule.about, thresholds, alarms]


def _threshold(threshold: Threshold, settings: RuleSettings) -> dict[str, Any]:
    return {
        "name": threshold.name,
        "value": settings.limits.get(threshold.name, threshold.default),
        "default": threshold.default,
        "unit": threshold.unit,
        "about": threshold.about,
        "source": threshold.source,
        "settable": threshold.settable,
    }
