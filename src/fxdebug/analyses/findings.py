"""Findings on the numbers of a run: as data (``Finding``, ``Findings``), as JSON and as text."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from fxdebug.data.values import Value
from fxdebug.operators.nonfinite import summary_of
from fxdebug.printable import printable

Severity: TypeAlias = Literal["error", "warning", "advice"]
FindingKind: TypeAlias = Literal[
    "nan", "inf", "input", "weight", "uninitialised", "headroom", "underflow", "subnormal", "cancellation", "float16",
    "precision",
]  # fmt: skip

ERROR: Final = "error"
WARNING: Final = "warning"
ADVICE: Final = "advice"
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with the numbers of one operation.

    ``kind``: ``nan`` or ``inf`` (made here), ``input`` or ``weight`` (there before the run), ``uninitialised`` (memory
    read before it was written), ``headroom``, ``underflow``, ``subnormal``, ``cancellation``, ``float16``,
    ``precision`` (digits lost, found by ``fxdebug.shadow``).
    ``severity``: ``error`` (it reached the results of the run, or the run raised), ``warning``, ``advice``.
    ``path`` is the module's path; ``call`` and ``node`` are the ids of the call and of the operation, for
    ``trace.node``. ``op`` is the operation's name, or the module's class where a call's operations are not known.
    ``source`` is the user's line. ``what`` tells in a sentence what happened. ``value`` is the result and ``inputs``
    are the operands, with statistics. ``reached`` counts the later operations with it in their results; ``output``
    tells whether the run returned it. ``absorbed`` names the operations with it in an input but not in the result.
    ``others`` are nodes with the same finding.
    """

    kind: FindingKind
    severity: Severity
    path: str
    call: str
    op: str
    what: str
    node: str = ""
    source: str | None = None
    value: Value | None = None
    inputs: tuple[Value, ...] = ()
    reached: int = 0
    output: bool = False
    absorbed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return printable(f"{self.severity}: {self.node}: {self.what}{where}")

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data: fields by name, values with dtype, shape and statistics."""
        plain = {
            name: getattr(self, name)
            for name in ("kind", "severity", "path", "call", "op", "node", "source", "what", "reached", "output")
        }
        return plain | {
            "value": _value_as_json(self.value),
            "inputs": [_value_as_json(value) for value in self.inputs],
            "absorbed": list(self.absorbed),
            "others": list(self.others),
        }


def _value_as_json(value: Value | None) -> dict[str, Any] | None:
    if value is None:
        return None
    stats = value.stats
    names = (
        () if stats is None else ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")
    )
    numbers = {name: _number_as_json(getattr(stats, name)) for name in names}
    return {"dtype": value.dtype, "shape": list(value.shape), "name": value.name, **numbers}


def _number_as_json(number: Any) -> Any:
    """Return a number for JSON: complex as a pair, infinite (the std of numbers like 1e308) as text."""
    if isinstance(number, complex):
        return [_number_as_json(number.real), _number_as_json(number.imag)]
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number


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
        lines += [*_paragraph(finding, width), ""]
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


def _paragraph(finding: Finding, width: int) -> list[str]:
    head = f"{finding.severity}: {printable(finding.node)}"
    line = "" if finding.source is None else printable(finding.source.rpartition("/")[2])
    head = f"{head}  {line}" if line and len(head) + len(line) + 2 <= width else head
    body = [f"{printable(finding.what)}."]
    lines = [*textwrap.wrap(head, width, subsequent_indent="    ")]
    if line and line not in lines[-1]:
        body.append(f"At {line}.")
    for part in (" ".join(body), *_values(finding), _spread(finding)):
        if part:
            lines += textwrap.wrap(part, width, initial_indent="  ", subsequent_indent="    ")
    return lines


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
