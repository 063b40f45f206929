"""The findings of several analyses as one report: the worst first, each fault once, without the rules that are off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fxdebug.analyses.numbers.findings import Checked, extent, findings_report
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import ANALYSES, GRADIENTS, NUMBERS, rule_of
from fxdebug.data.calls import Note
from fxdebug.data.findings import SEVERITIES, Finding, not_looked_at
from fxdebug.data.report import Cell, ReportData
from fxdebug.data.rules import Rule
from fxdebug.errors import UsageError, first_line


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

    def ask(
        self, name: str, analysis: Callable[[], ReportData[Any]], caught: tuple[type[BaseException], ...] = ()
    ) -> None:
        """Keep the report of an analysis, or why there is none: it cannot be done, or raised one of ``caught``."""
        try:
            report = analysis()
            if not isinstance(report, ReportData):
                raise UsageError(f"it returned {type(report).__name__}, not a report")
            self.reports[name] = report
        except UsageError as error:
            self.reasons[name] = first_line(error)
        except caught as error:
            self.reasons[name] = f"it raised {type(error).__name__}: {first_line(error)}"
            self.failed.add(name)

    def leave_out_empty(self) -> None:
        """Take reports without rows and findings for analyses that were not done: a note of theirs says why."""
        for name, report in list(self.reports.items()):
            if name != NUMBERS and report.columns and not report.rows and not report.findings and report.notes:
                self.reasons[name] = self.reports.pop(name).notes[0].what


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
    answer = next((done.reports[name].answer for name in done.names if done.reports[name].answer), "")
    return replace(report, notes=(*report.notes, *dict.fromkeys(others)), answer=answer)


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
    """Return findings by severity, then in the order of analyses; findings of several analyses at one place are joined.

    The one that is kept names all analyses that found it.
    """
    every: list[tuple[Finding, Rule | None]] = []
    for analysis, findings in found:
        for finding in findings:
            rule = rule_of(analysis, finding.rule)
            if rule is None or rule.id not in settings.off:
                every.append((replace(finding, analysis=analysis if rule is None else rule.analysis), rule))
    every.sort(key=lambda pair: SEVERITIES.index(pair[0].severity))
    kept: list[Finding] = []
    seen: dict[tuple[str, ...], dict[str, int]] = {}  # what a finding can have in common → by analysis, the first one
    for finding, rule in every:
        shared = [seen.get(key, {}) for key in _shared_with(finding, rule)] if rule is not None else []
        places = [at for first_of in shared for name, at in first_of.items() if name != finding.analysis]
        if places:
            first = kept[min(places)]
            names = dict.fromkeys([*first.analysis.split(", "), finding.analysis])
            kept[min(places)] = replace(first, analysis=", ".join(names))
            continue
        for key in () if rule is None else _tells(finding, rule):
            seen.setdefault(key, {}).setdefault(finding.analysis, len(kept))
        kept.append(finding)
    return kept


def _tells(finding: Finding, rule: Rule) -> Iterator[tuple[str, ...]]:
    """Yield what findings of other analyses may have in common with one, so that they tell of the same fault."""
    yield "rule", finding.rule, finding.node, finding.call
    yield "path", rule.subject, finding.path
    if finding.value is not None and finding.value.name is not None:
        yield "weight", rule.subject, finding.value.name
    if finding.output:
        yield "output", rule.subject


def _shared_with(finding: Finding, rule: Rule) -> Iterator[tuple[str, ...]]:
    """Yield what an earlier finding of another analysis tells (:func:`_tells`) if it is of the same fault."""
    if not rule.subject:
        yield "rule", finding.rule, finding.node, finding.call
        return
    yield "path", rule.subject, finding.path
    for word in finding.what.split():
        yield "weight", rule.subject, word
    if rule.analysis == GRADIENTS:  # the loss and its gradients follow from what the run returned
        yield "output", rule.subject
