"""The screen of `check`: the worst in full, a line for each of the rest, and what was checked."""

from __future__ import annotations

from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.data.report import ReportData
from fxdebug.exports.report.findings_text import FULL_LINES, text


def finding(number: int, what: str = "half of it is 0") -> Finding:
    return Finding("zeros", "warning", str(number), f"{number}#0", "relu", what, analysis="activations")


def report(*findings: Finding, operations: int = 7, unmeasured: int = 0, **more: Any) -> ReportData[Finding]:
    totals = {"operations": (operations, ""), "calls": (3, ""), "unmeasured": (unmeasured, "")}
    settings = {"analyses": ("activations",), **more.pop("settings", {})}
    return ReportData("check", "Net", (), findings, totals=totals, settings=settings, findings=findings, **more)


def test_all_is_said() -> None:
    found = [finding(number) for number in range(20)]
    notes = (Note("no gradients"), *(Note("no numbers", f"{number}") for number in range(10)))
    settings = {"limit": 0.5, "mode": "eval", "tensors": True}
    made = report(*found, unmeasured=2, notes=notes, settings=settings, answer="Look at relu.")
    assert text(made, 80).splitlines() == [
        "Look at relu.",
        "",
        *[line for n in range(9) for line in (f"warning: {n}#0  [activations.zeros]", "  half of it is 0.", "")],
        *[f"warning: {number}#0  [activations.zeros]  half of it is 0" for number in range(9, 17)],
        "and 3 more: report.findings, --json and --csv have all",
        "",
        "20 warnings (7 operations in 3 calls). 2 results have no statistics.",
        "Settings: limit 0.5; mode eval.",
        "no gradients",
        *[f"note: {number}: no numbers" for number in range(8)],
        "and 2 more notes: report.notes, or --json",
    ]


def test_the_first_is_in_full_however_long_and_nothing_is_left_out_without_need() -> None:
    lines = text(report(finding(0, "long " * 600), finding(1)), 80).splitlines()
    assert len(lines) > FULL_LINES and sum("long" in line for line in lines) > FULL_LINES
    assert text(report(operations=0), 80) == "Nothing wrong."
