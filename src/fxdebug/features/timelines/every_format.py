"""The calls of a profiled run in time, in the format that the name of the file asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.errors import UsageError
from fxdebug.features.timelines import chrome_trace, perfetto, speedscope


def write_timeline(report: ReportData[Any], path: Path) -> Path:
    """Write speedscope's file for ``*.speedscope.json``, Perfetto's for ``*.pftrace``, Chrome's trace otherwise.

    Raises ``UsageError`` for a report without times.
    """
    if not report.spans:
        raise UsageError(f"{report.analysis} has no times of calls: use fxdebug.profile(model, inputs)")
    if path.name.endswith(".speedscope.json"):
        return speedscope.write_report(report, path)
    return (perfetto if path.suffix == ".pftrace" else chrome_trace).write_report(report, path)
