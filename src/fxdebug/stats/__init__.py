"""A tensor → :class:`~fxdebug.data.values.Stats`, near the speed of reading it."""

from fxdebug.stats.elsewhere import Elsewhere, is_elsewhere
from fxdebug.stats.measure import Unmeasurable, fine_std, finished, measure, measure_at_once, measure_later
from fxdebug.stats.sums import BLOCK, array_of, is_freed, marking_of, memory_of

__all__ = [
    "BLOCK",
    "Elsewhere",
    "Unmeasurable",
    "array_of",
    "fine_std",
    "finished",
    "is_elsewhere",
    "is_freed",
    "marking_of",
    "measure",
    "measure_at_once",
    "measure_later",
    "memory_of",
]
