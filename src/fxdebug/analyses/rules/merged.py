"""The findings of several analyses as one report: the worst first, each fault once, without the rules that are off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fxdebug.analyses.numbers.findings import Checked, extent, findings_report
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import ANALYSES, GRADIENTS, NUMBERS, Rule, rule_of
from fxdebug.data.calls import Note
from fxdebug.data.findings import SEVERITIES, Finding, not_looked_at
from fxdebug.data.report import Cell, ReportData


@dataclass
class Done:
    """The analyses that were done, with their reports, and for the others the reasons why they were not.

    ``failed`` are those of the others that were asked for, or are done by default and failed: each is a finding.
    """

    reports: dict[str, ReportData[Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The analyses that were done, in the order of :data:`ANALYSES`."""
        return [name for name in ANALYSES if name in self.reports]


def merged_report(
    subject: str, done: Done, settings: RuleSettings, further: Mapping[str, Cell], calls: int = 0
) -> ReportData[Finding]:
    """Return the findings of all analyses as the report of ``check``; its notes say what was done and what was not.

    Notes of other analyses than that of the numbers have the analysis as their place. Those on a column of a table
    stay with that table.
    ``further`` are settings of the check itself. ``calls`` is their number in the run, where no report tells.
    """
    numbers = done.reports.get(NUMBERS)
    checked = Checked(calls=calls) if numbers is None else extent(numbers)
    report = findings_report(
        subject,
        merged([*((name, done.reports[name].findings) for name in done.names), *_gaps(subject, done)], settings),
        replace(checked, notes=(*checked.notes, *_coverage(done))),
        {**further, "analyses": ", ".join(done.names), **settings.cells()},
    )
    others = [
        Note(note.what, f"{name}: {note.where}" if note.where else name)
        for name in done.names
        for note in (done.reports[name].notes if name != NUMBERS else ())
        if note.where not in {column.heading for column in done.reports[name].columns} - {""}
    ]
    return replace(report, notes=(*report.notes, *dict.fromkeys(others)))


def _gaps(subject: str, done: Done) -> Iterator[tuple[str, list[Finding]]]:
    for name in ANALYSES:
        if name in done.failed:
            yield name, [not_looked_at(name, subject, name, done.reasons[name])]


def _coverage(done: Done) -> list[str]:
    """Return one sentence on the analyses that were done and one on each reason for leaving others out."""
    lines = [f"Checked: {', '.join(done.names)}."] if done.names else []
    by_reason: dict[str, list[str]] = {}
    for name in ANALYSES:
        if name in done.reasons:
            by_reason.setdefault(done.reasons[name], []).append(name)
    return [*lines, *(f"Not checked: {', '.join(names)} ({reason})." for reason, names in by_reason.items())]


def merged(found: Iterable[tuple[str, Sequence[Finding]]], settings: RuleSettings) -> list[Finding]:
    """Return findings by severity, then in the order of analyses; what several analyses tell of one place is told once.

    The one that is kept names all analyses that found it.
    """
    every: list[tuple[Finding, Rule | None]] = []
    for analysis, findings in found:
        for finding in findings:
            rule = rule_of(analysis, finding.rule)
            if rule is None or rule.id not in settings.off:
                every.append((replace(finding, analysis=analysis if rule is None else rule.analysis), rule))
    every.sort(key=lambda pair: SEVERITIES.index(pair[0].severity))
    kept: list[tuple[Finding, Rule | None]] = []
    for finding, rule in every:
        place = next((i for i, (other, known) in enumerate(kept) if _same(finding, rule, other, known)), None)
        if place is None:
            kept.append((finding, rule))
        else:
            first, known = kept[place]
            names = dict.fromkeys([*first.analysis.split(", "), finding.analysis])
            kept[place] = replace(first, analysis=", ".join(names)), known
    return [finding for finding, _ in kept]


def _same(one: Finding, rule: Rule | None, other: Finding, known: Rule | None) -> bool:
    """Do findings of two analyses tell of the same fault?"""
    if rule is None or known is None or rule.analysis == known.analysis:
        return False
    if not rule.subject:
        return one.rule == other.rule and (one.node, one.call) == (other.node, other.call)
    if rule.subject != known.subject:
        return False
    if rule.analysis == GRADIENTS and other.output:  # the loss and its gradients follow from what the run returned
        return True
    weight = None if other.value is None else other.value.name
    return one.path == other.path or (weight is not None and weight in one.what.split())
