"""``analyse``: ask a plug-in about a run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.data.report import ReportData
from fxdebug.errors import FxDebugError, UsageError, first_line, nearest
from fxdebug.plugins.installed import ANALYSES, FAILURES, plugin, plugins


def analyse(
    trace: Trace | str | os.PathLike[str], name: str, options: Mapping[str, object] | None = None
) -> Report[object]:
    """Return the report of an analysis that another package adds, on a trace or the folder of a run.

    ``options`` are those of the analysis. `fxdebug plugins` lists the analyses there are.
    Raises ``UsageError`` for a name that no package adds, and with the reason where the analysis fails.
    """
    found = plugin(ANALYSES, name)
    if found is None:
        known = [one.name for one in plugins(ANALYSES)]
        there = f"there are {', '.join(known)}" if known else "no package that is installed adds one"
        raise UsageError(f"no analysis {name!r}: {there}.{nearest(name, known)}")
    try:
        answer = found.function()(trace if isinstance(trace, Trace) else load(trace), **(options or {}))
    except FxDebugError:
        raise
    except FAILURES as error:
        what = f"the plug-in {name!r} of {found.package} failed"
        raise UsageError(f"{what}: {type(error).__name__}: {first_line(error)}") from error
    if isinstance(answer, Report):
        return answer
    if not isinstance(answer, ReportData):
        made = f"returned {type(answer).__name__}, not a report: make it with fxdebug.plugins.report"
        raise UsageError(f"the plug-in {name!r} of {found.package} {made}")
    return Report.of(answer)
