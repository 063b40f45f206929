"""Compare two reports of one analysis: calls that became slower, and numbers that differ, by the names of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import Unit, quantity
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.errors import UsageError

ENOUGH = 5  # calls of which the machine's own change can be told


@dataclass(frozen=True)
class ChangeLimits:
    """Thresholds of a comparison of times.

    ``ratio``: a call is slower from this ratio of the medians of its self times, and of the fastest repeats.
    ``fence``: and if neither middle half of the repeats is within this many of the other's interquartile ranges: what
    lies beyond 1.5 of them is outside of a distribution (J. Tukey, Exploratory Data Analysis, 1977), and repeats on a
    machine with other work spread that far.
    ``share``: and if it takes this much more of the slower run (%).
    """

    ratio: float = 1.1
    share: float = 1.0
    fence: float = 1.5


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """The self time of one call in two runs: medians in seconds, and their ratio; ``None`` where it is in one only.

    ``change`` is ``slower`` or ``faster`` beyond the thresholds, ``only before``, ``only after``, or empty.
    """

    call: str
    type: str
    before: float | None
    after: float | None
    ratio: float | None
    change: str


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One number that differs between two reports: its row, its column, both values, and the change in %.

    ``was`` and ``now`` are the values as text; ``before`` and ``after`` are ``None`` for a row that is in one only.
    """

    row: str
    column: str
    before: Cell
    after: Cell
    unit: str
    was: str
    now: str
    change: float | None


CHANGE_COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("before", "before", "s", "median of self", adds=True),
    Column("after", "after", "s", "median of self", adds=True),
    Column("ratio", "ratio", "", "after over before"),
    Column("change", "change"),
)
DIFFERENCE_COLUMNS = (
    Column("row", "row"),
    Column("column", "number"),
    Column("was", "before"),
    Column("now", "after"),
    Column("change", "change", "%", "of the value before"),
    Column("before", "before, as a number", shown=False),
    Column("after", "after, as a number", shown=False),
    Column("unit", "unit", shown=False),
)


def changes(
    before: ReportData[Any], after: ReportData[Any], limits: ChangeLimits
) -> ReportData[ChangeRow | DifferenceRow]:
    """Return what differs between two reports of the same analysis; times are judged, other numbers are listed.

    Raises ``UsageError`` for reports of different analyses.
    """
    if before.analysis != after.analysis:
        raise UsageError(
            f"a report of {before.analysis} and one of {after.analysis}: compare two reports of the same analysis"
        )
    return _of_times(before, after, limits) if before.analysis == "profile" else _of_numbers(before, after)


def _settings(before: ReportData[Any], after: ReportData[Any]) -> tuple[dict[str, Cell], list[Note]]:
    """Return the settings of the second run, and a note on each that differs from the first's."""
    notes = [
        Note(f"{name} was {before.settings.get(name)} before, and is {after.settings.get(name)} after")
        for name in dict.fromkeys([*before.settings, *after.settings])
        if before.settings.get(name) != after.settings.get(name)
    ]
    return dict(after.settings), notes


def _missing(names: Sequence[str], where: str) -> list[Note]:
    if not names:
        return []
    shown = ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
    return [Note(f"only {where}: {shown}")]


def _paired(before: ReportData[Any], after: ReportData[Any], field: str) -> dict[str, tuple[Any, Any]]:
    """Return the rows of both reports by name; ``None`` for a row that one does not have.

    The whole model is the same row, whatever the names of the two classes are.
    """
    pairs: dict[str, tuple[Any, Any]] = {}
    for side, report in enumerate((before, after)):
        seen: Counter[str] = Counter()
        for row in report.rows:
            name = str(getattr(row, field))
            root, rest = f"{before.subject}", name.removeprefix(report.subject)
            name = root + rest if name.startswith(report.subject) and rest[:1] in ("#", "/") else name
            seen[name] += 1
            key = name if seen[name] == 1 else f"{name} ({seen[name]})"
            one, other = pairs.get(key, (None, None))
            pairs[key] = (row, other) if side == 0 else (one, row)
    return pairs


# Times -------------------------------------------------------------------------------------------


def _of_times(before: ReportData[Any], after: ReportData[Any], limits: ChangeLimits) -> ReportData[ChangeRow]:
    pairs = _paired(before, after, "call")
    runs = [_number(report.totals.get("forward", (None, ""))[0]) for report in (before, after)]
    longest = max([run for run in runs if run is not None], default=None)
    shift = _shift(pairs)
    rows, findings = [], []
    for name, (one, other) in pairs.items():
        row = _change(name, one, other, shift, longest, limits)
        rows.append(row)
        if row.change == "slower":
            findings.append(_slower(row, other, limits))
    settings, notes = _settings(before, after)
    if shift >= limits.ratio or shift <= 1 / limits.ratio:
        notes.append(
            Note(
                f"most calls take {shift:.2f} times as long: the machine or its load is another; calls are judged by it"
            )
        )
    notes += _missing([row.call for row in rows if row.change == "only before"], "before")
    notes += _missing([row.call for row in rows if row.change == "only after"], "after")
    totals: dict[str, tuple[Cell, Unit]] = {"forward before": (runs[0], "s"), "forward after": (runs[1], "s")}
    if runs[0] and runs[1] is not None:
        totals["ratio"] = (runs[1] / runs[0], "")
    totals["calls compared"] = (sum(row.ratio is not None for row in rows), "")
    return ReportData(
        analysis="change of profile",
        subject=after.subject,
        columns=CHANGE_COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: -abs((row.after or 0.0) - (row.before or 0.0)))),
        totals=totals,
        findings=tuple(sorted(findings, key=lambda finding: -(finding.measured or 0.0))),
        notes=tuple(notes),
        settings=settings,
        ranked=False,
        folds=False,
    )


def _shift(pairs: Mapping[str, tuple[Any, Any]]) -> float:
    """Return the ratio that most calls share: that of the machine, not of the model. 1 where calls are few."""
    ratios = [
        after / before
        for one, other in pairs.values()
        if one is not None and other is not None
        and (before := _number(one.median)) and (after := _number(other.median))
    ]  # fmt: skip
    return median(ratios) if len(ratios) >= ENOUGH else 1.0


def _change(name: str, one: Any, other: Any, shift: float, longest: float | None, limits: ChangeLimits) -> ChangeRow:
    if one is None or other is None:
        row = one or other
        time = _number(row.median)
        kind = "only before" if other is None else "only after"
        return ChangeRow(
            name, str(row.type), time if other is None else None, time if one is None else None, None, kind
        )
    before, after = _number(one.median), _number(other.median)
    if before is None or after is None or not before:
        return ChangeRow(name, str(other.type), before, after, None, "")
    change = ""
    slow, fast = max(shift, 1.0), min(shift, 1.0)  # what the machine alone explains
    agree = _agree(one.least, other.least, before, after, limits)  # load disturbs the fastest repeats least
    if agree and _exceeds(after, before * slow, longest, limits) and _apart(one, other, slow, limits):
        change = "slower"
    elif agree and _exceeds(before * fast, after, longest, limits) and _apart(other, one, 1 / fast, limits):
        change = "faster"
    return ChangeRow(name, str(other.type), before, after, after / before, change)


def _agree(least_before: object, least_after: object, before: float, after: float, limits: ChangeLimits) -> bool:
    """Do the fastest repeats differ in the direction of the medians, by the same ratio?"""
    one, other = _number(least_before), _number(least_after)
    if one is None or other is None:
        return True
    return other > limits.ratio * one if after > before else one > limits.ratio * other


def _exceeds(time: float, expected: float, longest: float | None, limits: ChangeLimits) -> bool:
    """Is a time longer than expected, by the ratio, and by the share of the run?"""
    return (
        bool(longest) and time > limits.ratio * expected and 100 * (time - expected) >= limits.share * (longest or 0.0)
    )


def _apart(fast: Any, slow: Any, factor: float, limits: ChangeLimits) -> bool:
    """Are the repeats of two rows apart, also where the faster ones are taken times a factor?

    Every repeat of the slower one is above the upper fence of the faster one, and the slower one's lower fence is above
    the faster one's upper quartile.
    """
    low, high, slow_low, slow_high = (_number(one) for one in (fast.low, fast.high, slow.low, slow.high))
    if low is None or high is None or slow_low is None or slow_high is None:
        return False
    least = _number(slow.least)
    upper = high + limits.fence * (high - low)
    lower = slow_low - limits.fence * (slow_high - slow_low)
    return upper * factor < (slow_low if least is None else least) and high * factor < lower


def _slower(row: ChangeRow, after: Any, limits: ChangeLimits) -> Finding:
    return Finding(
        rule="slower",
        severity=WARNING,
        path=row.call.rpartition("#")[0],
        call=str(after.call),
        op=row.type,
        what=f"takes {quantity(row.after, 's')} itself, and took {quantity(row.before, 's')}: {row.ratio:.2f} times "
        "as long; the repeats of the two are further apart than they spread",
        measured=row.ratio,
        threshold=limits.ratio,
        advice="Look at what has changed in its own forward, and at hooks on it.",
    )


# Other numbers -----------------------------------------------------------------------------------


def _of_numbers(before: ReportData[Any], after: ReportData[Any]) -> ReportData[DifferenceRow]:
    rows = [*_differences_of_totals(before, after), *_differences_of_rows(before, after)]
    for part in before.parts:
        others = [
            p for p in after.parts if (p.analysis, p.settings.get("by")) == (part.analysis, part.settings.get("by"))
        ]
        rows += _differences_of_rows(part, others[0]) if others else []
    pairs = _paired(before, after, before.columns[0].field)
    settings, notes = _settings(before, after)
    notes += _missing([name for name, (_, other) in pairs.items() if other is None], "before")
    notes += _missing([name for name, (one, _) in pairs.items() if one is None], "after")
    return ReportData(
        analysis=f"change of {before.analysis}",
        subject=after.subject,
        columns=DIFFERENCE_COLUMNS,
        rows=tuple(rows),
        totals={
            "rows compared": (sum(None not in pair for pair in pairs.values()), ""),
            "numbers that differ": (len(rows), ""),
        },
        notes=tuple(notes),
        settings=settings,
        ranked=False,
    )


def _differences_of_totals(before: ReportData[Any], after: ReportData[Any]) -> Iterable[DifferenceRow]:
    for name in dict.fromkeys([*before.totals, *after.totals]):
        (one, unit), (other, _) = before.totals.get(name, (None, "")), after.totals.get(name, (None, ""))
        if one != other:
            yield _difference("total", name.strip(), one, other, unit or after.totals.get(name, (None, ""))[1])


def _differences_of_rows(before: ReportData[Any], after: ReportData[Any]) -> Iterable[DifferenceRow]:
    known = {column.field for column in after.columns}
    columns = [column for column in before.columns[1:] if column.field in known - {"source"}]  # lines move
    for name, (one, other) in _paired(before, after, before.columns[0].field).items():
        if one is None or other is None:
            continue
        for column in columns:
            was, now = getattr(one, column.field), getattr(other, column.field)
            if was != now:
                yield _difference(name, column.heading, was, now, column.unit)


def _difference(row: str, column: str, was: Cell, now: Cell, unit: Unit) -> DifferenceRow:
    one, other = _number(was), _number(now)
    change = 100 * (other - one) / abs(one) if one and other is not None else None
    return DifferenceRow(row, column, was, now, unit, _text(was, unit), _text(now, unit), change)


def _text(content: Cell, unit: Unit) -> str:
    number = _number(content)
    if number is None or (isinstance(content, int) and not unit):
        return "–" if content is None else str(content)
    return quantity(number, unit)


def _number(content: object) -> float | None:
    return float(content) if isinstance(content, (int, float)) and not isinstance(content, bool) else None
