"""Let Python look for garbage less often while a recording makes its records.

Python counts new objects, and after so many of them searches the youngest ones for garbage; now and then it searches
all. Records are not garbage, but there are many of them: searching takes a third of the time of a run that is saved.
"""

from __future__ import annotations

import gc

from fxdebug.capture.hooks.patch import Setting, SharedPatch

OBJECTS_PER_OBJECT = 50  # that recording makes, for each one that the model itself makes and keeps

Thresholds = tuple[int, ...]


def _raised(thresholds: Thresholds) -> Thresholds:
    """Return thresholds at which the model's own garbage is found about as often as without a recording."""
    youngest, *older = thresholds
    return (youngest * OBJECTS_PER_OBJECT, *older)  # zero stays zero: the collector is off


collect_less_often = SharedPatch(
    Setting("gc.set_threshold", gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds), _raised)
)
