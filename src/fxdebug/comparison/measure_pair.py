"""Measure the distance of two values: element by element where the data is there, else by samples or statistics.

Only one pair of tensors is in memory at a time, so that runs of any size can be compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxdebug.comparison.elementwise import measure_elements, sorted_nonzero
from fxdebug.comparison.facing_parts import OF_SIGNALS, facing_parts
from fxdebug.comparison.measures import SAMPLE, STATISTICS, TENSORS, Measures
from fxdebug.comparison.thresholds import CLOSER
from fxdebug.comparison.tolerance import (
    error_between,
    is_additive_mask,
    is_masked,
    least_share_between,
    population_std,
    rms_of,
    tolerance_of,
)
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, sample_positions
from fxdebug.errors import first_line
from fxdebug.operators.dtypes import EPS
from fxdebug.stats.elements import elements

if TYPE_CHECKING:
    from torch import Tensor


class Meter:
    """Measure pairs of values of two traces, each pair once."""

    def __init__(self, a: TraceData, b: TraceData, tolerance: float | None = None) -> None:
        self.a, self.b = a, b
        self._tolerance = tolerance
        self._measures: dict[tuple[int, int], Measures] = {}
        self.unreadable: Counter[str] = Counter()  # how many pairs' data could not be read, by the error raised
        # numbers read from printed text have few digits: a smaller error counts as none
        digits = [int(trace.settings["printed"]) for trace in (a, b) if "printed" in trace.settings]
        self._printed = 10.0 ** (1 - min(digits)) if digits else 0.0
        self.facing = facing_parts(a, b)
        self._of_calls: dict[int, frozenset[int]] = {}  # per side, by the id of its trace; made when asked for

    def tolerance(self, a: Value, b: Value) -> float:
        """Return the error that counts as rounding between these two."""
        return tolerance_of(a.dtype, b.dtype) if self._tolerance is None else self._tolerance

    def __call__(self, a: Value, b: Value) -> Measures:
        key = (a.number, b.number)
        if key not in self._measures:
            self._measures[key] = self._measure(a, b)
        return self._measures[key]

    def _measure(self, a: Value, b: Value) -> Measures:
        if a.digest is not None and a.digest == b.digest:
            return _equal_measures(a)
        by_stats = (error_between if a.dtype in EPS else least_share_between)(a.stats, b.stats)
        if by_stats is not None and by_stats <= self._printed:
            by_stats = 0.0
        if self.face_in_parts(a, b):
            return self._measure_parts(a, b)
        if math.prod(a.shape) != math.prod(b.shape) and not _is_repetition(a, b):
            if self.facing is not None and self.facing.by in OF_SIGNALS:  # with what is kept, or padded
                return Measures(0.0, what="unknown")
            return Measures(math.inf, what="shape")
        if _squeezed(a.shape) == _squeezed(b.shape):
            if self._has_data(self.a, a) and self._has_data(self.b, b):
                both = self._rows_of(self._tensors(a, b))
                if both is not None:
                    return self._measure_tensors(a, b, *both)
            samples = self._samples(a, b)
            if samples is not None:
                return _measure_samples(a, b, *samples, by_stats)
        if by_stats is None:
            return Measures(0.0, what="unknown")
        return Measures(by_stats, STATISTICS, "nonfinite" if _nonfinite_differ(a, b) else "")

    def of_tensors(self, a: Value, b: Value, one: Tensor, other: Tensor) -> float | None:
        """Return the error of a tensor against another one, which stand for two values; ``None`` for other shapes."""
        if self.face_in_parts(a, b) and (one.shape, other.shape) == (a.shape, b.shape):
            assert self.facing is not None
            parts = self.facing.of(one, other)
            return None if parts is None else self._measure_tensors(a, b, *parts).error
        both = self._rows_of((one, other)) if _squeezed(tuple(one.shape)) == _squeezed(tuple(other.shape)) else None
        return None if both is None else self._measure_tensors(a, b, *both).error

    def hold_same_numbers(self, a: Sequence[Value], b: Sequence[Value], relative: float, least: float) -> bool | None:
        """Do two sets of tensors hold the same numbers in any order, zeros aside? ``None`` without their data."""
        both = self._sorted(a, b)
        return None if both is None else bool(((both[0] - both[1]).abs() <= relative * both[0].abs() + least).all())

    def is_reordered(self, a: Value, b: Value) -> bool:
        """Do the data say that both hold nearly the same numbers, in different places?"""
        measures, both = self(a, b), self._sorted([a], [b])
        if measures.basis != TENSORS or both is None or not 0.0 < measures.error < math.inf:
            return False
        distance, size = float((both[0] - both[1]).norm()), float(both[0].norm())
        return distance * CLOSER <= (measures.relative or 0.0) * size

    def _sorted(self, a: Sequence[Value], b: Sequence[Value]) -> tuple[Tensor, Tensor] | None:
        """Return all numbers of either side but zeros, in ascending order; ``None`` without the data."""
        if not all(self._has_data(self.a, value) for value in a) or not all(
            self._has_data(self.b, value) for value in b
        ):
            return None
        try:
            one, other = sorted_nonzero(map(self.a.tensor, a)), sorted_nonzero(map(self.b.tensor, b))
        except Exception as error:  # as in `_tensors`
            self.unreadable[first_line(error)] += 1
            return None
        return None if one.numel() != other.numel() else (one, other)  # some may be 0 in the narrower dtype

    # Tensors -------------------------------------------------------------------------------------

    def _has_data(self, trace: TraceData, value: Value) -> bool:
        """Has a run the data of a value? Data of single operations, kept for attention, do not count."""
        if value.saved is None:
            return False
        if id(trace) not in self._of_calls:
            self._of_calls[id(trace)] = _values_of_calls(trace)
        return value.number in self._of_calls[id(trace)]

    def _tensors(self, a: Value, b: Value) -> tuple[Tensor, Tensor] | None:
        try:
            return self.a.tensor(a), self.b.tensor(b)
        except Exception as error:  # deleted since, or written by a newer version: the statistics are there still
            self.unreadable[first_line(error)] += 1
            return None

    def _rows_of(self, both: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        """Return all elements of two tensors of any layout in one dimension."""
        try:
            return None if both is None else (elements(both[0]), elements(both[1]))
        except Exception as error:  # as in `_tensors`: more zeros than fit, or a layout that torch cannot write out
            self.unreadable[first_line(error)] += 1
            return None

    def _measure_tensors(self, a: Value, b: Value, one: Tensor, other: Tensor) -> Measures:
        import torch

        with torch.no_grad():
            if one.numel() != other.numel():  # of ragged parts, whose sizes no shape tells
                return Measures(math.inf, what="shape")
            if one.numel() == 0:
                return Measures(0.0, TENSORS, max_abs=0.0, mean_abs=0.0)
            return measure_elements(one, other, self.tolerance(a, b), a, b)

    def face_in_parts(self, a: Value, b: Value) -> bool:
        """Do two values face each other in some rows and positions only, by their shapes?"""
        return self.facing is not None and a.numel != b.numel and self.facing.roles(a.shape, b.shape) is not None

    def _measure_parts(self, a: Value, b: Value) -> Measures:
        """Measure the rows and positions that face each other; it takes the data of both."""
        parts = self.parts(a, b)
        return Measures(0.0, what="unknown") if parts is None else self._measure_tensors(a, b, *parts)

    def parts(self, a: Value, b: Value) -> tuple[Tensor, Tensor] | None:
        """Return the elements of the rows and positions that face each other; ``None`` without the data of both."""
        both = self._tensors(a, b) if a.saved is not None and b.saved is not None else None
        rows = self._rows_of(both)
        if self.facing is None or both is None or rows is None or any(x.is_nested for x in both):
            return None
        return self.facing.of(*(row.reshape(x.shape) for row, x in zip(rows, both)))

    # Samples -------------------------------------------------------------------------------------

    def _samples(self, a: Value, b: Value) -> tuple[Sequence[float], Sequence[float]] | None:
        """Return the elements of both at fixed positions, where one side kept only those."""
        one, other = self._sampled_elements(self.a, a), self._sampled_elements(self.b, b)
        return None if one is None or other is None or len(one) != len(other) else (one, other)

    def _sampled_elements(self, trace: TraceData, value: Value) -> Sequence[float] | None:
        read_sample = getattr(trace.data, "sample", None)
        if read_sample is not None:
            sample: Sequence[float] | None = read_sample(value)
            return sample
        if not self._has_data(trace, value):
            return None
        try:
            flat = trace.tensor(value).detach().reshape(-1)
            return [_real(flat[position].item()) for position in sample_positions(flat.numel())]
        except Exception:  # as in `_tensors`, or of a layout without positions (sparse, nested)
            return None


def _squeezed(shape: Sequence[int]) -> list[int]:
    """Return a shape without its dimensions of one, which do not change where elements lie."""
    return [size for size in shape if size != 1]


def _values_of_calls(trace: TraceData) -> frozenset[int]:
    """Return the numbers of the values that calls are given and return."""
    return frozenset(
        value.number
        for call in trace.calls
        for slots in (call.inputs, call.outputs, call.given, call.returned)
        for value in slots or ()
    )


def _real(item: Any) -> float:
    return abs(item) if isinstance(item, complex) else float(item)


def _measure_samples(
    a: Value, b: Value, one: Sequence[float], other: Sequence[float], by_stats: float | None
) -> Measures:
    size = 0.0 if a.stats is None else rms_of(a.stats)
    top = max((abs(x) for x in one if math.isfinite(x)), default=0.0)
    scale = max(size, top)
    worst = 0.0
    for x, y in zip(one, other):
        if x != y and not (x != x and y != y):
            gap = abs(x - y)
            if a.dtype not in EPS:  # indices and masks: how many differ, not by how much
                worst += 1.0 / len(one)
                continue
            worst = max(worst, gap / scale if scale and math.isfinite(gap) else math.inf)
    if a.stats is not None and is_additive_mask(a.stats) and b.stats is not None and is_additive_mask(b.stats):
        worst = 0.0
    return Measures(max(worst, by_stats or 0.0), SAMPLE, "nonfinite" if _nonfinite_differ(a, b) else "")


def _equal_measures(a: Value) -> Measures:
    return Measures(0.0, TENSORS, "", 0.0, 0.0, 0.0, 1.0, math.inf, 0.0, 0)


def _is_repetition(a: Value, b: Value) -> bool:
    """Is one value the other, repeated along a dimension? One run may expand a value that the other broadcasts."""
    one, other = a.stats, b.stats
    if one is None or other is None or not a.numel or not b.numel or max(a.numel, b.numel) % min(a.numel, b.numel):
        return False
    same = [getattr(one, name) == getattr(other, name) for name in ("min", "max", "absmax")]
    return all(same) and abs(population_std(one) - population_std(other)) <= 1e-6 * (rms_of(one) or 1.0)


def _nonfinite_differ(a: Value, b: Value) -> bool:
    one, other = a.stats, b.stats
    if (
        one is None
        or other is None
        or (is_masked(one) and is_masked(other))
        or (is_additive_mask(one) and is_additive_mask(other))
    ):
        return False
    return (one.nan > 0, one.posinf > 0, one.neginf > 0) != (other.nan > 0, other.posinf > 0, other.neginf > 0)
