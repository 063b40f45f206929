"""Order findings: in execution order, but for settings whose effect is harmless beside that of another finding."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fxdebug.comparison.result import Row

HARMLESS = 1 / 30  # of the largest error that is added: what healthy operations enlarge an error by, see GROWTH
_MEASURED_APART = ("shape", "missing", "extra", "raised", "input", "random", "nonfinite")  # their errors are no sizes


def in_order(findings: Iterable[Row]) -> list[Row]:
    """Return findings in execution order, with the settings at the end that change next to nothing.

    An epsilon that is off by 1e-6 never stands before another activation.
    """
    rows = sorted(findings, key=lambda row: row.position)
    sizes = [row.error for row in rows if row.kind not in _MEASURED_APART and math.isfinite(row.error)]
    least = max(sizes, default=0.0) * HARMLESS
    harmless = [row for row in rows if row.kind == "constant" and row.error < least]
    known = {id(row) for row in harmless}
    return [*(row for row in rows if id(row) not in known), *harmless]
