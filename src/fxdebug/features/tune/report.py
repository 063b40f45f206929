"""The report of ``tune``: three lists, the noise, and the lines of code to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fxdebug.api.reports.report import Report
from fxdebug.cells import wrapped
from fxdebug.data.calls import Note
from fxdebug.data.measures import Unit, counted, quantity
from fxdebug.data.report import Cell, ReportData
from fxdebug.features.shared.tried_settings.trial import BY_PROCESSORS, COLUMNS, Clock, TrialRow, Trials, told
from fxdebug.features.shared.tried_settings.verdict import CHANGES, REFUSED, TAKE, VERDICTS, Gain, is_busy
from fxdebug.printable import printable

_LISTS: Final = ((TAKE, "take"), (CHANGES, "take, with a changed result"), (REFUSED, "refused"))


def tune_report(
    model: str,
    rows: Sequence[TrialRow],
    trials: Trials,
    kept: Sequence[str],
    gain: Gain | None,
    settings: Mapping[str, Cell],
) -> Report[TrialRow]:
    """Return the report of trials: those to take first, the fastest first, then those that change results."""
    assert trials.outcome is not None
    control = trials.control
    totals: dict[str, tuple[Cell, Unit]] = {
        "step": (trials.seconds, "s"),
        "peak": (trials.outcome.peak, "B"),
        "control": (str(control), ""),
        "take": (" + ".join(kept) or "nothing", ""),
    }
    if gain is not None:
        totals["together"] = (f"{gain} times as fast", "")
    notes = []
    if trials.by == "processor" and trials.clock is None:
        notes.append(Note(BY_PROCESSORS))
    if is_busy(control):
        told = f"the machine is too busy to tell small gains: the model against itself spans {control.low:.2f} to "
        notes.append(Note(f"{told}{control.high:.2f}; try again when it does nothing else"))
    return Report(
        analysis="tune",
        subject=model,
        answer=_answer(rows, kept, gain, control, trials.by),
        columns=COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: (VERDICTS.index(row.verdict), -(row.gain or 0.0)))),
        totals=totals,
        notes=tuple(notes),
        settings=settings,
        ranked=False,
        folds=False,
    )


def _answer(rows: Sequence[TrialRow], kept: Sequence[str], gain: Gain | None, control: Gain, clock: Clock) -> str:
    """Return what to take and what it brings, in one sentence."""
    best = max((row for row in rows if row.verdict != REFUSED), key=lambda row: row.gain or 0.0, default=None)
    taken = [row for row in rows if row.change_of in kept]
    by = " in processor time" if clock == "processor" else ""
    if taken:
        whole = gain or Gain(taken[0].gain or 1.0, taken[0].low or 1.0, taken[0].high or 1.0)
        return f"Take {' and '.join(kept)}: {whole} times as fast{by}, with the same result."
    if best is not None:
        return f"Nothing helps that leaves the result as it is; {best.change_of} changes it: {told(best)}."
    if is_busy(control):
        return "Cannot tell: the machine is too busy."
    return f"Nothing that was tried helps: {counted(len(rows), 'setting')}, none beyond the noise."


def text(report: ReportData[Any], width: int) -> str:
    """Return the three lists, the noise, and the lines to write, as text."""
    settings = " · ".join(f"{name} {value}" for name, value in report.settings.items())
    lines = [*wrapped(report.answer, width), f"tune of {report.subject}  {settings}"]
    taken = f"as it is: {_quantity(report, 'step')} a step, {_quantity(report, 'peak')} at most"
    lines.append(f"{taken}; against itself {report.totals['control'][0]}: less is noise")
    for verdict, title in _LISTS:
        rows = [row for row in report.rows if row.verdict == verdict]
        lines += ["", f"{title}:" if rows else f"{title}: nothing"]
        for row in rows:
            lines += wrapped(printable(f"  {row.change_of}: {told(row)}"), width, further="    ")
    if "together" in report.totals:
        lines += ["", f"together, {report.totals['take'][0]}: {report.totals['together'][0]}", ""]
        kept = str(report.totals["take"][0]).split(" + ")
        lines += [f"  {row.code}" for row in report.rows if row.change_of in kept]
    for note in report.notes:
        lines += ["", *wrapped(printable(f"note: {note.what}"), width)]
    return "\n".join(lines)


def _quantity(report: ReportData[Any], total: str) -> str:
    number, unit = report.totals[total]
    return quantity(number, unit) if isinstance(number, (int, float)) else "n/a"
