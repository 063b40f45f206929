"""The tensors that a run kept, as its page shows them: histograms of values, and reports of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxdebug.api.trace import Trace
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import FxDebugError, first_line
from fxdebug.plugins.feature import OURS, answer
from fxdebug.plugins.features import features
from fxdebug.plugins.installed import FAILURES
from fxdebug.stats.histogram import histogram

MOST_ELEMENTS = 1 << 25  # elements of values with a histogram: half a second
BINS = 32


def kept_in(trace: TraceData, reports: Sequence[ReportData[Any]]) -> dict[str, Any]:
    """Return the options of a page's exporter that follow from tensors: ``histograms``, ``reports``, ``remarks``."""
    remarks: list[str] = []
    histograms, missing = _histograms(trace)
    if missing:
        remarks.append(f"{missing} values have no histogram: those before them have {MOST_ELEMENTS:,} elements")
    for one in features():
        if one.sheet and not any(report.analysis == one.name for report in reports):
            try:
                report = answer(one.sheet, trace if isinstance(trace, Trace) else Trace.of(trace))
                reports = [*reports, *([] if report is None else [report])]
            except FxDebugError as error:
                remarks.append(f"no {one.name} maps: {error}")
            except FAILURES as error:
                if one.package == OURS:
                    raise
                remarks.append(f"no {one.name} of {one.package}: {type(error).__name__}: {first_line(error)}")
    return {"histograms": histograms, "reports": tuple(reports), "remarks": tuple(remarks)}


def _histograms(trace: TraceData) -> tuple[dict[int, Histogram], int]:
    """Return the histograms of the values that were kept, by number, and how many there was no time for."""
    found: dict[int, Histogram] = {}
    room, missing = MOST_ELEMENTS, 0
    for value in trace.values:
        if not _has_histogram(value):
            continue
        if value.numel > room:
            missing += 1
            continue
        room -= value.numel
        try:
            with torch.no_grad():
                found[value.number] = histogram(trace.tensor(value), BINS)
        except (FxDebugError, RuntimeError, TypeError, NotImplementedError):  # a layout that has no elements to count
            continue
    return found, missing


def _has_histogram(value: Value) -> bool:
    is_kept = value.saved is not None and value.name is None  # weights have reports of their own
    return is_kept and value.numel > 1 and "complex" not in value.dtype and value.dtype != "bool"
