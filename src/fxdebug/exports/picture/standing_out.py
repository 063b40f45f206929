"""Calls whose number stands out among the calls that do the same: in a picture that it colours they are drawn apart."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from fxdebug.data.calls import Call
from fxdebug.data.measures import CALL, Measure
from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.colors import SCALE, scaled, statistic
from fxdebug.exports.ranges import without_numbers
from fxdebug.query.folding import main_output
from fxdebug.query.measures import STATISTICS, number_of_all, require_measure

_FAR = 6  # medians of absolute deviation, as web/src/canvas/pool.ts has it
_SHARE = 0.1  # of the middle
_FEWEST = 3
_COLORS = 2 / len(SCALE)  # two colours apart, as a share of the scale


def standing_out(trace: TraceData, name: str) -> frozenset[int]:
    """Return the indices of the calls whose number of a measure lies far from that of the others of their kind."""
    measure = require_measure(trace, name)
    kinds: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    everything = []
    for call, number in _numbers(trace, measure):
        everything.append(scaled(number, measure))
        value = main_output(call)
        kind = without_numbers(call.path), call.type, "" if value is None else value.label
        kinds.setdefault(kind, []).append((call.index, number))
    apart = _COLORS * (max(everything, default=0.0) - min(everything, default=0.0))
    return frozenset(
        index
        for numbers in kinds.values()
        for index, number, middle in _far(numbers)
        if abs(scaled(number, measure) - scaled(middle, measure)) >= apart
    )


def _numbers(trace: TraceData, measure: Measure) -> Iterator[tuple[Call, float]]:
    name = measure.name
    for call in trace.calls:
        if name in STATISTICS:
            value = main_output(call)
            number = None if value is None or value.stats is None else statistic(value.stats, name)
        elif CALL in measure.of:
            inside: Iterable[Call] = call.walk() if measure.own and measure.adds else (call,)
            number = number_of_all(trace, list(inside), name)
        else:
            return
        if isinstance(number, (int, float)):
            yield call, float(number)


def _far(numbers: list[tuple[int, float]]) -> Iterator[tuple[int, float, float]]:
    """Yield index, number and middle where a number is six deviations, and a tenth of the middle, from the middle."""
    if len(numbers) < _FEWEST:
        return
    middle = statistics.median(number for _, number in numbers)
    spread = statistics.median(abs(number - middle) for _, number in numbers)
    for index, number in numbers:
        if abs(number - middle) > max(_FAR * spread, _SHARE * abs(middle)):
            yield index, number, middle
