"""The findings of ``check`` on one screen: the worst in full, further ones in a line each, and what was checked."""

from __future__ import annotations

from collections.abc import Sequence

from fxdebug.analyses.numbers import findings as of_numbers
from fxdebug.analyses.numbers.findings import extent, paragraph, summary_of_findings
from fxdebug.cells import shortened_to, wrapped
from fxdebug.data.findings import Finding
from fxdebug.data.measures import counted
from fxdebug.data.report import ReportData
from fxdebug.printable import printable

FULL_LINES = 26  # of the findings that are shown in full
SHORT = 8  # findings in a line each, and notes; files have all
LEAST = 20  # letters of a place


def text(report: ReportData[Finding], width: int) -> str:
    """Return the screen of ``fxdebug check``; a report of :meth:`fxdebug.Trace.check` has every finding in full."""
    if "analyses" not in report.settings:
        return of_numbers.text(report, width)
    lines, shown = _in_full(report.findings, width)
    if report.answer:
        lines = [*wrapped(printable(report.answer), width), "", *lines]
    rest = report.findings[shown:]
    lines += [_line(finding, width) for finding in rest[:SHORT]]
    if len(rest) > SHORT:
        lines += wrapped(f"and {len(rest) - SHORT} more: report.findings, --json and --csv have all", width)
    if rest:
        lines.append("")
    checked = extent(report)
    operations, calls = counted(checked.operations, "operation"), counted(checked.calls, "call")
    size = f" ({operations} in {calls})" if checked.operations else ""
    unmeasured = f" {checked.unmeasured} results have no statistics." if checked.unmeasured else ""
    lines += wrapped(f"{summary_of_findings(report.findings, 'Nothing wrong')}{size}.{unmeasured}", width)
    changed = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in report.settings.items()
        if name not in ("analyses", "tensors")
    ]
    if changed:
        lines += wrapped(f"Settings: {printable('; '.join(changed))}.", width)
    for note in report.notes:
        if not note.where:
            lines += wrapped(printable(note.what), width)
    placed = [note for note in report.notes if note.where]
    for note in placed[:SHORT]:
        lines += wrapped(f"note: {printable(note.where)}: {printable(note.what)}", width)
    if len(placed) > SHORT:
        lines += wrapped(f"and {counted(len(placed) - SHORT, 'more note')}: report.notes, or --json", width)
    return "\n".join(lines)


def _in_full(findings: Sequence[Finding], width: int) -> tuple[list[str], int]:
    """Return the lines of the first findings, as many as fit, and their number."""
    lines: list[str] = []
    for count, finding in enumerate(findings):
        own = paragraph(finding, width, rule=rule_id(finding))
        if lines and len(lines) + len(own) > FULL_LINES:
            return lines, count
        lines += [*own, ""]
    return lines, len(findings)


def rule_id(finding: Finding) -> str:
    """Return the name by which a rule is switched off: the analysis, a dot, and the rule.

    >>> rule_id(Finding("dead unit", "warning", "1", "1#0", "ReLU", "", analysis="activations, weights"))
    'activations.dead unit'
    """
    return f"{finding.analysis.partition(',')[0]}.{finding.rule}"


def _line(finding: Finding, width: int) -> str:
    """Return a finding in one line, of which the start stays; a long place gives room to what was found."""
    place = shortened_to(printable(finding.node or finding.call or finding.path), max(width // 3, LEAST), "ends")
    return shortened_to(f"{finding.severity}: {place}  [{rule_id(finding)}]  {printable(finding.what)}", width)
