"""The reports of analyses on a run, for its page: times, memory, attention, histograms, tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.report import Cell, Chart, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.exports.page.findings import finding_data, note_data
from fxdebug.exports.page.pack import NONE, Texts, firsts, integers, reals
from fxdebug.exports.page.places import Places
from fxdebug.plugins.feature import at
from fxdebug.plugins.features import features
from fxdebug.printable import printable
from fxdebug.query.measures import id_of

MOST_ROWS = 2_000  # of one table
_LONGEST_SERIES = 4_096  # points of a timeline: the largest of each part is kept
_NANOSECOND = 1e-9


def report_data(trace: TraceData, reports: Sequence[ReportData[Any]], places: Places, texts: Texts) -> dict[str, Any]:
    """Return the parts of ``RunData`` that reports have: spans, timelines, attention, and a page for each report.

    Spans are those of a profile, or are laid out from the times that a profile has attached to the run.
    """
    pages = [_page(report, places) for report in reports]
    attention: list[dict[str, Any]] = []
    for page, report in zip(pages, reports):
        place = next((one.maps for one in features() if one.maps and one.name == report.analysis), "")
        if place:
            maps, left_out = at(place)(report, places)
            attention += maps
            page["notes"] += note_data([Note(left_out)] if left_out else [])
    return {
        "spans": next((_spans(report, places, texts) for report in reports if report.spans), _of_measure(trace, texts)),
        "timelines": [timeline for report in reports if (timeline := _timeline(report)) is not None],
        "charts": [_chart(chart, report, places) for report in reports for chart in report.charts],
        "attention": attention,
        "reports": pages,
    }


def histogram_columns(histograms: Mapping[int, Histogram]) -> dict[str, Any] | None:
    """Return the histograms of values by their numbers, as ``HistogramsData``; each has one edge more than counts."""
    if not histograms:
        return None
    listed = [(number, one) for number, one in histograms.items() if one.counts]
    return {
        "value": integers([number for number, _ in listed]),
        "first": firsts([len(one.counts) for _, one in listed]),
        "edges": reals([edge for _, one in listed for edge in one.edges]),
        "counts": integers([count for _, one in listed for count in one.counts]),
        "nan": integers([one.nan for _, one in listed]),
        "inf": integers([one.inf for _, one in listed]),
    }


# Times and memory --------------------------------------------------------------------------------


def _spans(report: ReportData[Any], places: Places, texts: Texts) -> dict[str, Any]:
    """Return the calls and regions of one run in time, in seconds since it began."""
    spans = report.spans
    return {
        "call": integers([places.of_call(span.name(report.subject) + f"#{span.number}") for span in spans]),
        "name": texts.column([span.name(report.subject) for span in spans]),
        "depth": integers([span.depth for span in spans]),
        "begin": reals([span.begin * _NANOSECOND for span in spans]),
        "end": reals([span.end * _NANOSECOND for span in spans]),
        "by": "Medians over the repeats of a profile, laid out as one run",
    }


def _of_measure(trace: TraceData, texts: Texts) -> dict[str, Any] | None:
    """Return the calls of a run one after the other, with the times that a profile has attached; ``None`` without."""
    taken = trace.taken.get("time.total")
    lengths = {} if taken is None else {c.index: taken.numbers.get(id_of(trace, c)) for c in trace.calls}
    timed = [(call, length) for call in trace.calls if (length := lengths.get(call.index)) is not None]
    if taken is None or not timed:
        return None
    begins: dict[int, float] = {}
    free: dict[int | None, float] = {}  # by call: where the next one in it begins
    for call, length in timed:
        begins[call.index] = free[call.index] = free.get(call.parent_index, 0.0)
        free[call.parent_index] = begins[call.index] + length
    return {
        "call": integers([call.index for call, _ in timed]),
        "name": texts.column([call.path or trace.model for call, _ in timed]),
        "depth": integers([call.depth for call, _ in timed]),
        "begin": reals([begins[call.index] for call, _ in timed]),
        "end": reals([begins[call.index] + length for call, length in timed]),
        "by": f"Times of {printable(taken.by)}, one call after the other: what lies between calls comes last",
    }


def _timeline(report: ReportData[Any]) -> dict[str, Any] | None:
    if not report.series or report.charts:
        return None
    length = max(map(len, report.series.values()))
    step = max(1, math.ceil(length / _LONGEST_SERIES))
    unit = "B" if report.analysis == "memory" else ""
    return {
        "title": printable(report.analysis),
        "by": printable(report.subject),
        "series": [
            {"name": printable(name), "unit": unit, "numbers": reals(_coarse(numbers, step))}
            for name, numbers in report.series.items()
        ],
        "marks": [[at // step, printable(label)] for at, label in report.marks],
        "step": step,
    }


def _chart(chart: Chart, report: ReportData[Any], places: Places) -> dict[str, Any]:
    """Return ``ChartData`` of payload.ts; the line of a parameter belongs to the call of its module."""
    step = max(1, math.ceil(len(chart.steps) / _LONGEST_SERIES))
    is_about_whole = chart.name in chart.lines
    calls = [NONE if is_about_whole else places.of_call(id) for id in chart.lines]
    owners = [
        places.of_call(id.rpartition(".")[0]) if call == NONE and "." in id and not is_about_whole else call
        for id, call in zip(chart.lines, calls)
    ]
    return {
        "title": printable(chart.name),
        "unit": chart.unit,
        "about": printable(chart.about),
        "steps": integers(chart.steps[::step]),
        "names": [printable(id) for id in chart.lines],
        "calls": integers(owners),
        "numbers": reals([number for line in chart.lines.values() for number in _coarse(line, step)]),
        "marks": [[at, printable(label)] for at, label in (report.marks if chart.marks is None else chart.marks)],
        "layers": [printable(name) for name in chart.layers],
        "usual": chart.usual,
    }


def _coarse(numbers: Sequence[float], step: int) -> Sequence[float]:
    """Return the largest of every ``step`` numbers."""
    if step == 1:
        return numbers
    return [max(numbers[at : at + step]) for at in range(0, len(numbers), step)]


# Tables ------------------------------------------------------------------------------------------


def _page(report: ReportData[Any], places: Places) -> dict[str, Any]:
    rows = [report.cells(row) for row in report.rows[:MOST_ROWS]] if report.rows != report.findings else []
    notes = note_data(report.notes)
    if len(report.rows) > MOST_ROWS:
        notes += note_data([Note(f"{len(report.rows) - MOST_ROWS} more lines are left out")])
    return {
        "analysis": printable(report.analysis),
        "subject": printable(report.subject),
        "columns": [
            {
                "field": column.field,
                "heading": printable(column.heading),
                "unit": column.unit,
                "about": printable(column.about),
                "adds": column.adds,
            }
            for column in report.columns
        ],
        "rows": [[_cell(line[column.field]) for column in report.columns] for line in rows],
        "calls": [places.of_call(str(line.get("call", line.get("path", "")))) for line in rows],
        "totals": [["answer", printable(report.answer), ""]] * bool(report.answer)
        + [
            [printable(f"{name}, at least" if name in report.at_least else name), _cell(number), unit]
            for name, (number, unit) in report.totals.items()
        ],
        "findings": finding_data(report.findings, places),
        "notes": notes,
        "histograms": [
            {
                "id": printable(id),
                "call": places.of_call(id),
                "edges": list(one.edges),
                "counts": list(one.counts),
                "nan": one.nan,
                "inf": one.inf,
            }
            for id, one in report.histograms.items()
        ],
    }


def _cell(cell: Cell) -> Cell:
    """Return a cell as JSON has it: texts without control characters, numbers that are not finite as text."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    return cell if cell is None or isinstance(cell, (bool, int, float)) else printable(str(cell))
