"""The report of an analysis on a run: a given one, that in a folder, or that of a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import nn

from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import fx_debug
from fxdebug.api.trace import Trace
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.data.report import ReportData

Row = TypeVar("Row")


def report_of_run(
    analyse: Callable[[Trace], ReportData[Row]],
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
) -> Report[Row]:
    """Return the report on a run: the given one, that in a folder, or that of a model, which is run and put back."""
    if not isinstance(model, nn.Module):
        return Report.of(analyse(model if isinstance(model, Trace) else load(model)))
    with state_restored(model):
        return Report.of(analyse(fx_debug(model, *deep_copy((inputs, kwargs)))))
