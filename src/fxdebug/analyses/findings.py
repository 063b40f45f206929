"""Findings on the numbers of a run, and as text."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fxdebug.data.findings import ADVICE, ERROR, SEVERITIES, WARNING, Finding
from fxdebug.data.measures import quantity
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


class Findings(tuple[Finding, ...]):
    """Findings, worst first, printed as in ``fxdebug check``. ``checked``: the extent of the check."""

    checked: Checked

    def __new__(cls, findings: Iterable[Finding] = (), checked: Checked | None = None) -> Findings:
        result = super().__new__(cls, tuple(findings))
        result.checked = checked or Checked()
        return result

    @property
    def healthy(self) -> bool:
        """Is there nothing but advice?"""
        return all(finding.severity == ADVICE for finding in self)

    def as_json(self) -> dict[str, Any]:
        """Return the findings and the extent of the check as plain data."""
        checked = self.checked
        return {
            "healthy": self.healthy,
            "findings": [finding.as_json() for finding in self],
            "operations": checked.operations,
            "calls": checked.calls,
            "unmeasured": checked.unmeasured,
            "notes": list(checked.notes),
        }

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(text(self))}</pre>"


def worst_first(findings: Iterable[Finding], position: dict[str, int]) -> list[Finding]:
    """Return findings by severity; within one severity those in the run's result first, each in execution order."""
    return sorted(
        findings, key=lambda f: (SEVERITIES.index(f.severity), not f.output, position.get(f.node, len(position)))
    )


# As text -----------------------------------------------------------------------------------------

WIDTH = 80


def text(findings: Findings, width: int = WIDTH) -> str:
    """Return the screen of ``fxdebug check``: every finding in a few lines, then a summary of what was checked."""
    lines: list[str] = []
    for finding in findings:
        lines += [*paragraph(finding, width), ""]
    checked = findings.checked
    extent = (
        f"{checked.operations} operations in {checked.calls} calls" if checked.operations else f"{checked.calls} calls"
    )
    unmeasured = f", {checked.unmeasured} results without statistics" if checked.unmeasured else ""
    lines += textwrap.wrap(f"{_summary(findings)} ({extent}{unmeasured}).", width)
    for note in checked.notes:
        lines += textwrap.wrap(note, width)
    return "\n".join(lines)


def _summary(findings: Findings) -> str:
    counts = Counter(finding.severity for finding in findings)
    singular = {ERROR: "error", WARNING: "warning", ADVICE: "piece of advice"}
    plurals = {ERROR: "errors", WARNING: "warnings", ADVICE: "pieces of advice"}
    parts = [f"{counts[s]} {singular[s] if counts[s] == 1 else plurals[s]}" for s in SEVERITIES if counts[s]]
    if not parts:
        return "Nothing wrong with the numbers"
    if findings.healthy:
        return f"Nothing wrong with the numbers, {parts[0]}"
    return ", ".join(parts)


def paragraph(finding: Finding, width: int) -> list[str]:
    """Return the lines of one finding: severity, place and source line, what happened, its values, what to do."""
    head = f"{finding.severity}: {printable(finding.node or finding.call or finding.path)}"
    line = "" if finding.source is None else printable(finding.source.rpartition("/")[2])
    head = f"{head}  {line}" if line and len(head) + len(line) + 2 <= width else head
    body = [f"{printable(finding.what)}."]
    lines = [*textwrap.wrap(head, width, subsequent_indent="    ")]
    if line and line not in lines[-1]:
        body.append(f"At {line}.")
    for part in (" ".join(body), _measured(finding), *_values(finding), _spread(finding), finding.advice):
        if part:
            lines += textwrap.wrap(part, width, initial_indent="  ", subsequent_indent="    ")
    return lines


def _measured(finding: Finding) -> str:
    if finding.measured is None or finding.threshold is None:
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
        parts.append(f"In {finding.reached} later operation{'' if finding.reached == 1 else 's'}")
        parts.append("and in what the run returned" if finding.output else "and not in what the run returned")
        if finding.absorbed:
            names = ", ".join(finding.absorbed[:3]) + (", …" if len(finding.absorbed) > 3 else "")
            parts.append(f"(ends in {names})")
        more = f" The same in {len(finding.others)} more calls." if finding.others else ""
        return " ".join(parts) + "." + more
    if finding.others:
        shown = ", ".join(finding.others[:3]) + (", …" if len(finding.others) > 3 else "")
        return f"Also in {len(finding.others)} more: {shown}."
    return ""
