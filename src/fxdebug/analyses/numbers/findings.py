"""Findings on the numbers of a run, and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fxdebug.cells import cell_len, wrapped
from fxdebug.data.calls import Note
from fxdebug.data.findings import ADVICE, ERROR, SEVERITIES, WARNING, Finding
from fxdebug.data.measures import Unit, counted, quantity
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.operators.nonfinite import summary_of
from fxdebug.printable import printable

FindingKind: TypeAlias = Literal[
    "nan", "inf", "input", "weight", "uninitialised", "headroom", "underflow", "subnormal", "cancellation", "float16",
    "precision",
]  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """The extent of a check: the number of operations and calls, and notes on what could not be checked."""

    operations: int = 0
    calls: int = 0
    unmeasured: int = 0  # results without statistics
    notes: tuple[str, ...] = field(default=())


COLUMNS = (
    Column("severity", "severity"),
    Column("rule", "rule"),
    Column("node", "node", about="the operation, by its id in the graph of the run"),
    Column("op", "operation"),
    Column("path", "path", about="the module"),
    Column("call", "call"),
    Column("source", "line"),
    Column("what", "what happened"),
    Column("measured", "measured", about="the number that the rule compared with its threshold"),
    Column("threshold", "threshold"),
    Column("reached", "reached", about="later operations with it in their results"),
    Column("output", "returned", about="is it in what the run returned?"),
    Column("analysis", "analysis", about="the analysis that found it", shown=False),
)


def findings_report(
    subject: str, findings: Sequence[Finding], checked: Checked, settings: Mapping[str, Cell]
) -> ReportData[Finding]:
    """Return findings as the report of ``check``: a row for each of them, and the extent of the check as totals."""
    totals: dict[str, tuple[Cell, Unit]] = {
        "operations": (checked.operations, ""),
        "calls": (checked.calls, ""),
        "results without statistics": (checked.unmeasured, ""),
    }
    return ReportData(
        analysis="check",
        subject=subject,
        columns=COLUMNS,
        rows=tuple(findings),
        totals=totals,
        findings=tuple(findings),
        notes=tuple([Note(note) for note in checked.notes]),
        settings=settings,
        ranked=False,
    )


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Is there nothing but advice?"""
    return all(finding.severity == ADVICE for finding in findings)


def extent(report: ReportData[Finding]) -> Checked:
    """Return the extent of the check that a report is about."""
    operations, calls, unmeasured = (int(number or 0) for number, _ in report.totals.values())
    return Checked(operations, calls, unmeasured, tuple([note.what for note in report.notes]))


def worst_first(findings: Iterable[Finding], position: dict[str, int]) -> list[Finding]:
    """Return findings by severity; within one severity those in the run's result first, each in execution order.

    One of the same line as one in the result stands with it: what a line makes begins with its first call.
    """
    findings = list(findings)
    lines = {(one.rule, one.op, one.source) for one in findings if one.output and one.source}

    def key(one: Finding) -> tuple[int, bool, int]:
        in_result = one.output or (one.rule, one.op, one.source) in lines
        return SEVERITIES.index(one.severity), not in_result, position.get(one.node, len(position))

    return sorted(findings, key=key)


# As text -----------------------------------------------------------------------------------------


def text(report: ReportData[Finding], width: int) -> str:
    """Return the screen of ``fxdebug check``: every finding in a few lines, then a summary of what was checked."""
    lines: list[str] = []
    for finding in report.findings:
        lines += [*paragraph(finding, width), ""]
    checked = extent(report)
    size = (
        f"{checked.operations} operations in {checked.calls} calls" if checked.operations else f"{checked.calls} calls"
    )
    unmeasured = f", {checked.unmeasured} results without statistics" if checked.unmeasured else ""
    lines += wrapped(f"{summary_of_findings(report.findings)} ({size}{unmeasured}).", width)
    for note in checked.notes:
        lines += wrapped(note, width)
    return "\n".join(lines)


def summary_of_findings(findings: Sequence[Finding], healthy: str = "Nothing wrong with the numbers") -> str:
    """Return the number of errors, warnings and pieces of advice in words; ``healthy`` begins where there are none.

    >>> summary_of_findings(())
    'Nothing wrong with the numbers'
    """
    counts = Counter(finding.severity for finding in findings)
    singular = {ERROR: "error", WARNING: "warning", ADVICE: "piece of advice"}
    plurals = {ERROR: "errors", WARNING: "warnings", ADVICE: "pieces of advice"}
    parts = [f"{counts[s]} {singular[s] if counts[s] == 1 else plurals[s]}" for s in SEVERITIES if counts[s]]
    if not parts:
        return healthy
    if is_healthy(findings):
        return f"{healthy}, {parts[0]}"
    return ", ".join(parts)


def paragraph(finding: Finding, width: int, *, rule: str = "") -> list[str]:
    """Return the lines of one finding: severity, place and source line, what happened, its values, what to do.

    ``rule`` is shown at the end of the first line.
    """
    head = f"{finding.severity}: {printable(finding.node or finding.call or finding.path)}"
    line = "" if finding.source is None else printable(finding.source.rpartition("/")[2])
    if line and cell_len(head) + cell_len(line) + 2 <= width:
        head, line = f"{head}  {line}", ""
    lines = [*wrapped(f"{head}  [{printable(rule)}]" if rule else head, width, further="    ")]
    body = [f"{printable(finding.what)}.", *([f"At {line}."] if line else [])]
    for part in (" ".join(body), _measured(finding), *_values(finding), _spread(finding), finding.advice):
        if part:
            lines += wrapped(part, width, first="  ", further="    ")
    return lines


def _measured(finding: Finding) -> str:
    if finding.measured is None or not finding.threshold:  # a count of what was said already
        return ""
    return f"{quantity(finding.measured, finding.unit)}, threshold {quantity(finding.threshold, finding.unit)}."


def _values(finding: Finding) -> list[str]:
    rows = [f"given {summary_of(value)}" for value in finding.inputs[:4]]
    if len(finding.inputs) > 4:
        rows.append(f"and {len(finding.inputs) - 4} more")
    return [*rows, f"made {summary_of(finding.value)}"] if finding.value is not None else rows


def _spread(finding: Finding) -> str:
    parts = []
    if finding.kind in ("nan", "inf", "input", "weight", "uninitialised"):
        count, returned = counted(finding.reached, "later operation"), "in what the run returned"
        if finding.reached:
            parts.append(f"In {count} and {'' if finding.output else 'not '}{returned}")
        else:
            parts.append(f"I{returned[1:]}" if finding.output else f"In no later operation, and not {returned}")
        if finding.absorbed:
            names = ", ".join(finding.absorbed[:3]) + (", …" if len(finding.absorbed) > 3 else "")
            parts.append(f"(ends in {names})")
        more = f" The same in {len(finding.others)} more calls." if finding.others else ""
        return " ".join(parts) + "." + more
    if finding.others:
        shown = ", ".join(finding.others[:3]) + (", …" if len(finding.others) > 3 else "")
        return f"Also in {len(finding.others)} more: {shown}."
    return ""
