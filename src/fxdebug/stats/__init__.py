"""A tensor → :class:`~fxdebug.trace.Stats`, near the speed of reading it."""

from fxdebug.stats.measure import Unmeasurable, finished, measure, printed_numbers
from fxdebug.stats.sums import BLOCK, array_of

__all__ = ["BLOCK", "Unmeasurable", "array_of", "finished", "measure", "printed_numbers"]
