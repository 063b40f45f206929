"""The page of a watched training: its curves, its report, and the calls of its last watched step."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fxdebug.data.calls import Call, Note, Parameter
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Outputs, Value
from fxdebug.exports.page.run import PageOptions
from fxdebug.exports.page.write import trace_page
from fxdebug.features.shared.records.training import ResultStatistics, TrainingRecord
from fxdebug.features.training.report import training_report
from fxdebug.features.training.saved.restarts import chart_of, restart_of
from fxdebug.features.training.saved.training_file import read_ranks
from fxdebug.files.write_file import write_text


def write_training(record: TrainingRecord, path: Path) -> Path:
    """Write the page of a watched training, also of one that goes on."""
    return write_text(path, training_page(record))


def training_page(
    record: TrainingRecord, *others: TrainingRecord, live: Mapping[str, Any] | None = None, folder: Path | None = None
) -> str:
    """Return the page of a watched training; ``others`` are the same on other ranks, ``live`` is as for a run.

    ``folder`` is that of the training, where earlier ones are that it may go on with.
    """
    report = training_report(record, others=others)
    restart = None if folder is None else restart_of(record, folder)
    chart = None if restart is None else chart_of(record, restart)
    if chart is not None:
        report = replace(report, charts=(chart, *report.charts))
    return trace_page(run_of(record), PageOptions(check=False, reports=(report,)), live)


def page_of_training(folder: str | os.PathLike[str], live: Mapping[str, Any] | None = None) -> str:
    """Return the page of a watched training, also of one that goes on: curves, report, the last watched step.

    Raises ``LoadError`` for a folder without such a training and for a damaged file.
    """
    return training_page(*read_ranks(Path(folder)), live=live, folder=Path(folder))


def run_of(record: TrainingRecord) -> TraceData:
    """Return the last watched step as a run without graphs; before the first one, a run of one call."""
    step = record.watched[-1] if record.watched else None
    values: list[Value] = []
    results: dict[int, list[ResultStatistics]] = {}
    for one in () if step is None else step.results:
        results.setdefault(one.position, []).append(one)
    has_root = any(listed[0].path == "" for listed in results.values())
    calls = [] if has_root else [Call(0, "", record.model, 0, outputs=Outputs(None), finished=0, duration=math.nan)]
    index: dict[int, int] = {}
    for position, listed in sorted(results.items()):
        first = listed[0]
        parent = None if not calls else index.get(-1 if first.parent is None else first.parent, 0)
        index[position] = len(calls)
        returned = [_value(len(values) + i, one) for i, one in enumerate(listed)]
        values += returned
        depth = 0 if parent is None else calls[parent].depth + 1
        calls.append(
            Call(
                len(calls), first.path, first.type, first.number, outputs=_outputs(returned), parent_index=parent,
                depth=depth, finished=len(calls), training=True, duration=math.nan,
            )
        )  # fmt: skip
    return TraceData(
        model=record.model,
        calls=tuple(calls),
        values=tuple(values),
        parameters=tuple([
            Parameter((one.name,), "parameter", one.shape, one.dtype, "", one.reach != "frozen")
            for one in (() if step is None else step.parameters)
        ]),
        modules={call.path: call.type for call in calls},
        notes=tuple([Note(text) for text in record.notes]),
    )  # fmt: skip


def _value(number: int, one: ResultStatistics) -> Value:
    return Value(number, one.shape, "", "", name=None, stats=one.stats)


def _outputs(values: Sequence[Value]) -> Outputs:
    return Outputs(values[0] if len(values) == 1 else Group("sequence", "tuple", tuple(values)))
