"""Runs, reports and watched trainings as a folder that TensorBoard reads: graph, scalars, histograms, embeddings.

Every export writes files of its own into the folder, and replaces those that it wrote before for the same step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fxdebug.analyses.measures import derive
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.measures import CALL, names_in
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats
from fxdebug.features.shared.records.distributions import Distribution
from fxdebug.features.shared.records.gradients import TensorGradient
from fxdebug.features.shared.records.training import TrainingRecord, WatchedStep
from fxdebug.features.tensorboard.graph import TensorboardGraph, started
from fxdebug.features.tensorboard.library import EventFile
from fxdebug.features.tensorboard.projector import write_embedding
from fxdebug.files.write_file import all_written_whole
from fxdebug.printable import printable
from fxdebug.query.measures import derived, number_of, require_measure

STATISTICS = ("mean", "std", "absmax", "nan", "inf")
LONGEST_TAG = 200


def write_trace(
    trace: TraceData,
    path: Path,
    *,
    step: int = 0,
    measures: str | Sequence[str] | None = None,
    embedding: str | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write a run to a folder: its graph with times and bytes, and numbers of its calls as scalars of a step.

    ``measures``: those that are written as scalars, by default mean, std, absmax, nan, inf and all that were attached.
    ``embedding``: the call whose result is written for the projector, one point a token, with ``labels``; the run must
    have kept it (``values="tensors"``).
    """
    chosen = (*STATISTICS, *trace.taken) if measures is None else names_in(measures) if measures else ()
    derive(trace, *chosen)
    for name in chosen:
        require_measure(trace, name)
    asked = {name: one for name, one in derived(trace).items() if name in chosen}
    graph = TensorboardGraph(trace, {**asked, **trace.taken})
    when = started(trace)
    with all_written_whole(path) as new:
        with EventFile(new, "0000000000.graph", when) as file:
            file.graph(graph.graph())
            metadata = graph.run_metadata()
            if metadata is not None:
                file.run_metadata("run", metadata)
        with EventFile(new, f"{step:010d}.run", when) as file:
            file.scalars(list(_numbers_of_calls(trace, chosen)), step)
        if embedding is not None:
            write_embedding(trace, new, embedding, labels, earlier=path)
    return path


def _numbers_of_calls(trace: TraceData, measures: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield tag and number of every call; TensorBoard groups tags by what stands before the first ``/``."""
    for name in measures:
        if CALL not in require_measure(trace, name).of:
            continue
        for call in trace.calls:
            number = number_of(trace, call, name)
            if isinstance(number, (int, float)):
                place = (call.path or trace.model) + (f"#{call.number}" if call.number else "")
                yield tag(name, place), float(number)


def tag(group: str, name: str) -> str:
    """Return the tag of a scalar or a histogram: printable and not too long.

    >>> tag("mean", "h.0.attn")
    'mean/h.0.attn'
    """
    text = printable(name)
    half = LONGEST_TAG // 2
    return f"{group}/{text if len(text) <= LONGEST_TAG else f'{text[:half]}…{text[-half:]}'}"


# Reports -----------------------------------------------------------------------------------------


def write_report(report: ReportData[Any], path: Path, *, step: int = 0) -> Path:
    """Write the numbers of a report as scalars of a step, and its histograms with the buckets that were counted."""
    with all_written_whole(path) as new, EventFile(new, f"{step:010d}.{report.analysis}", 0.0) as file:
        file.scalars(list(_numbers_of_report(report)), step)
        for series, numbers in report.series.items():
            for position, number in enumerate(numbers):
                file.scalar(tag(report.analysis, series), number, position)
        for name, histogram in report.histograms.items():
            file.histogram(tag(report.analysis, name), histogram, step)
        distributions: Mapping[str, Distribution] = getattr(report, "distributions", {})
        for name, found in distributions.items():
            histogram = Histogram(found.edges, found.counts, found.nan, found.posinf + found.neginf)
            file.histogram(tag(report.analysis, name), histogram, step)
    return path


def _numbers_of_report(report: ReportData[Any]) -> Iterator[tuple[str, float]]:
    for heading, (cell, _) in report.totals.items():
        if _is_number(cell):
            yield tag(report.analysis, f"total: {heading.strip()}"), float(cell)  # type: ignore[arg-type]
    for measure, numbers in report.measures.items():
        for id, number in numbers.items():
            yield tag(measure, id.removesuffix("#0")), number
    if report.measures or report.series:
        return
    names = report.columns[0].field if report.columns else ""
    for row in report.rows:
        for column, cell in report.cells(row).items():
            if column != names and _is_number(cell):
                yield tag(f"{report.analysis}.{column}", str(getattr(row, names))), float(cell)  # type: ignore[arg-type]


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


# Watched trainings -------------------------------------------------------------------------------


def write_training(record: TrainingRecord, path: Path) -> Path:
    """Write every step of a watched training: loss, norm and time, and the statistics of watched steps."""
    rank = "" if record.rank is None else f".rank{record.rank}"
    with all_written_whole(path) as new, EventFile(new, f"training{rank}", 0.0) as file:
        after: dict[int, float] = {}
        passed = 0.0
        for step in record.steps:
            passed += step.seconds
            after[step.number] = passed
            numbers = {"loss": step.loss, "grad norm": step.norm, "seconds": step.seconds}
            for name, number in numbers.items():
                if number is not None:
                    file.scalar(f"training/{name}", number, step.number, passed)
        for watched in record.watched:
            when = after.get(watched.number, passed)
            for name, number in _numbers_of_step(watched):
                file.scalar(name, number, watched.number, when)
        for histograms in record.histograms:
            when = after.get(histograms.number, passed)
            for named in histograms.weights:
                file.histogram(tag("weight", named.name), named.histogram, histograms.number, when)
            for named in histograms.gradients:
                file.histogram(tag("grad", named.name), named.histogram, histograms.number, when)
    return path


def _numbers_of_step(step: WatchedStep) -> Iterator[tuple[str, float]]:
    for result in step.results:
        place = (result.path or result.type) + (f"#{result.number}" if result.number else "") + result.place
        yield from _numbers_of_stats(result.stats, place)
        yield from _numbers_of_gradient(result.gradient, "result.grad", place)
    for parameter in step.parameters:
        yield tag("weight.norm", parameter.name), parameter.weight_norm
        yield from _numbers_of_gradient(parameter.gradient, "grad", parameter.name)
        if parameter.update_norm is not None and parameter.weight_norm:
            yield tag("update.ratio", parameter.name), parameter.update_norm / parameter.weight_norm


def _numbers_of_stats(stats: Stats | None, place: str) -> Iterator[tuple[str, float]]:
    for name in STATISTICS if stats is not None else ():
        number = stats.posinf + stats.neginf if name == "inf" else getattr(stats, name)  # type: ignore[union-attr]
        if isinstance(number, (int, float)):
            yield tag(name, place), float(number)


def _numbers_of_gradient(gradient: TensorGradient | None, group: str, place: str) -> Iterator[tuple[str, float]]:
    if gradient is not None:
        yield tag(f"{group}.norm", place), gradient.norm
        share = gradient.stats.zeros / gradient.stats.count if gradient.stats.count else math.nan
        if not math.isnan(share):
            yield tag(f"{group}.zeros", place), 100 * share
