"""Work that a run does without need, from its record: each rule tells the share of the time that is at stake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxdebug.data.findings import Finding
from fxdebug.data.measured.surroundings import Surroundings
from fxdebug.data.trace import TraceData
from fxdebug.features.profile.report import CallProfile
from fxdebug.features.profile.wasted.equal_work import equal_work
from fxdebug.features.profile.wasted.forms import casts_back, copies, one_hot_products, product_order
from fxdebug.features.profile.wasted.loops import growing, loops
from fxdebug.features.profile.wasted.settings import settings
from fxdebug.features.profile.wasted.timed_ops import Work
from fxdebug.features.profile.wasted.unused_results import parts_used, unused

_RULES = (equal_work, unused, parts_used, loops, growing, product_order, one_hot_products, casts_back, copies)


def wasted(trace: TraceData, calls: Sequence[CallProfile], around: Surroundings, least: float) -> Iterator[Finding]:
    """Yield what is computed without need and takes at least ``least`` % of the time of all operations."""
    work = Work(trace, calls)
    if not work.seconds:
        return
    for rule in _RULES:
        yield from rule(work, least)
    yield from settings(work, around, least)
