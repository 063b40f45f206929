"""Attach the measures of a report to a trace: joined by path, call number and operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.measures import MEASURES, Taken
from fxdebug.data.report import Cell, ReportData
from fxdebug.data.trace import AnyTrace, TraceData, replaced
from fxdebug.errors import UsageError, with_article
from fxdebug.query.measures import id_of
from fxdebug.query.network import network_of, root_name


def with_measures(trace: AnyTrace, reports: Iterable[ReportData[Any]]) -> AnyTrace:
    """Return a copy of the trace that has the measures of some reports too; numbers of the same measure are replaced.

    A report may come from another run of the same model: its numbers go by path, call number and operation. Numbers of
    calls and operations that this run does not have are left out, and a note of the trace says how many.
    Raises ``UsageError`` for a report without measures and for one of another model: another class, a module of
    another class at a path, or no call in common.
    """
    taken, notes = dict(trace.taken), list(trace.notes)
    for report in reports:
        if not report.measures:
            raise UsageError(f"{report.analysis} takes no measures: there is nothing to attach")
        _require_same_model(trace, report)
        known = _ids(trace, report)
        left: dict[str, None] = {}
        for name, given in report.measures.items():
            # the id of the root alone is without a name: "#0"
            numbers = {f"{root_name(trace)}{id}" if id.startswith("#") else id: number for id, number in given.items()}
            fitting = {id: number for id, number in numbers.items() if id in known}
            left |= dict.fromkeys(id for id in numbers if id not in known)
            if fitting:
                taken[name] = Taken(MEASURES[name], fitting, _origin(report.analysis, report.settings))
        if left and len(left) == len(set().union(*report.measures.values())):
            raise UsageError(f"{report.analysis} fits nothing in this run: it is of {_some(left)}; {_has(trace)}")
        if left:
            notes.append(Note(f"{report.analysis} has numbers of {len(left)} places not in this run: {_some(left)}"))
    return replaced(trace, taken=taken, notes=tuple(notes))


def _require_same_model(trace: TraceData, report: ReportData[Any]) -> None:
    if report.subject != trace.model:
        raise UsageError(f"{report.analysis} is of {report.subject}, and this run is of {trace.model}")
    if not {"call", "type"} <= {column.field for column in report.columns}:
        return
    types = {id_of(trace, call): call.type for call in trace.calls}
    for row in report.rows:
        there, here = row.type, types.get(row.call, row.type)
        if there and there != here:
            kinds = f"{with_article(there)} there, {with_article(here)} here"
            raise UsageError(f"{report.analysis} is of another model: {row.call} is {kinds}")


def _ids(trace: TraceData, report: ReportData[Any]) -> set[str]:
    """Return the ids that numbers can go by: of calls and parameters; of operations only where a report has those."""
    ids = {id_of(trace, item) for items in (trace.calls, trace.parameters) for item in items}
    if trace.graph_source is not None and any("/" in id for numbers in report.measures.values() for id in numbers):
        ids |= network_of(trace).nodes.keys()
    return ids


def _origin(analysis: str, settings: Mapping[str, Cell]) -> str:
    """Return in words where numbers come from: ``profile, repeats 20, device cpu``."""
    return ", ".join([analysis, *(f"{name} {value}" for name, value in settings.items())])


def _some(ids: Iterable[str]) -> str:
    shown = list(ids)
    return ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")


def _has(trace: TraceData) -> str:
    return f"this run has {_some(id_of(trace, call) for call in trace.calls)}"


def all_numbers(taken: Mapping[str, Taken], id: str) -> dict[str, float]:
    """Return every number that analyses took of a call, an operation or a parameter, by measure."""
    return {name: one.numbers[id] for name, one in taken.items() if id in one.numbers}
