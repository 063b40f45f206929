"""Values of two runs with the same numbers, whatever they are paired with.

Where both compute a thing in another way, a value may be paired with one that stands where it does and is another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import StepList
from fxdebug.data.values import Value

LEAST = 4  # elements: fewer may agree by chance


class EqualValues:
    """Looks up values of one run among those of the other; constant ones and very small ones are none."""

    def __init__(self, pairs: Pairs, meter: Meter) -> None:
        self._pairs, self._meter = pairs, meter
        self._known: dict[int, dict[tuple[int, ...], list[Value]]] = {}  # by the side and the shape

    def in_b(self, value: Value) -> Value | None:
        """Return the first value of b that has the numbers of one of a."""
        known = self._of(self._pairs.b, value)
        return next((other for other in known if self._are_equal(value, other)), None)

    def _of(self, run: StepList, value: Value) -> Iterable[Value]:
        """Return the values of a run that may be equal to one of the other run."""
        if id(run) not in self._known:
            by_shape = self._known[id(run)] = dict[tuple[int, ...], list[Value]]()
            for each in run.values.values():
                if run.root(each) is each and _says_something(each):
                    by_shape.setdefault(each.shape, []).append(each)
        return self._known[id(run)].get(value.shape, ()) if _says_something(value) else ()

    def _are_equal(self, a: Value, b: Value) -> bool:
        return a.dtype == b.dtype and self._meter(a, b).error <= self._meter.tolerance(a, b)


def _says_something(value: Value) -> bool:
    known = value.stats is not None and bool(value.stats.std)
    return known and value.numel >= LEAST and value.name is None
