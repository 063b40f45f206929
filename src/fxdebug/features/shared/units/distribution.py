"""The exact distribution of a tensor's elements, and that of a tensor over several runs."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fxdebug.features.shared.records.distributions import QUANTILES, Distribution
from fxdebug.stats.cpu_sums import array_of
from fxdebug.stats.doubles import where_doubles
from fxdebug.stats.elements import elements
from fxdebug.stats.histogram import edges_between

Numbers: TypeAlias = npt.NDArray[np.floating]
Sorted: TypeAlias = npt.NDArray[np.floating]  # finite numbers, the smallest first

BINS = 64
FINE = 64  # bins that each of these is divided into, for the quantiles of several tensors


def distribution(tensor: Tensor, bins: int = BINS) -> Distribution:
    """Return the distribution of a tensor's elements, computed in float64 from all of them.

    Moments, quantiles and bins are numpy's. Booleans count as 0 and 1; of complex numbers the absolute value is taken.

    >>> import torch
    >>> found = distribution(torch.tensor([0.0, 1.0, 3.0, float("nan")]), bins=3)
    >>> found.median, found.nan, found.zeros, found.counts
    (1.0, 1, 1, (1, 1, 1))
    """
    seen = Distributions(bins)
    seen.add(as_numpy(tensor))
    return seen.result()


def as_numpy(tensor: Tensor) -> Numbers:
    """Return the elements of a tensor in one dimension: as float64, or as float32 where that holds them exactly."""
    body = elements(tensor)
    if body.is_complex():
        body = body.abs()
    narrow = body.dtype.itemsize <= 4 and (body.is_floating_point() or body.dtype.itemsize <= 2)
    return array_of((body.float() if narrow else where_doubles(body).double()).cpu())


class Distributions:
    """Gathers the distribution of several tensors. Counts stay exact: bins only grow, two becoming one."""

    def __init__(self, bins: int = BINS) -> None:
        self._bins = bins
        self._tensors = 0
        self._whole: Distribution | None = None  # of the first tensor
        self._counts = np.zeros(5, np.int64)  # elements, NaN, +Inf, -Inf, zeros
        self._sums = np.zeros(4)  # of the powers of the distances from the first mean
        self._squares = 0.0
        self._middle, self._min, self._max = 0.0, math.inf, -math.inf
        self._fine: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._low, self._width = 0.0, 0.0

    def add(self, numbers: Numbers) -> Sorted:
        """Add the elements of a tensor; return its finite elements in their order of size."""
        finite = numbers[np.isfinite(numbers)]
        ordered: Sorted = np.sort(finite)
        counts = _counts(numbers, finite, ordered)
        self._tensors += 1
        self._counts += counts
        if not finite.size:
            self._whole = Distribution(*counts) if self._tensors == 1 else self._whole
            return ordered
        wide = finite.astype(np.float64)
        if self._tensors == 1:
            self._middle = float(wide.mean())
        apart = wide - self._middle
        squares = apart * apart
        if self._tensors == 1:
            self._whole = _of_one(counts, wide, ordered, apart, squares, self._bins)
        self._sums += [apart.sum(), squares.sum(), np.dot(squares, apart), np.dot(squares, squares)]
        self._squares += float(np.dot(wide, wide))
        low, high = float(ordered[0]), float(ordered[-1])
        self._min, self._max = min(self._min, low), max(self._max, high)
        self._grow(low, high)
        self._fine += _in_bins(ordered, self._low + self._width * np.arange(self._fine.size + 1))
        return ordered

    def _grow(self, low: float, high: float) -> None:
        """Make the bins reach from ``low`` to ``high``: their width doubles until they do."""
        size = self._bins * FINE
        if not self._fine.size:
            self._fine = np.zeros(size, np.int64)
            span = high - low or max(abs(high), 1.0) * 1e-6
            self._low, self._width = low, span / size
            return
        while low < self._low or high > self._low + size * self._width:
            pairs = self._fine.reshape(-1, 2).sum(1)
            empty = np.zeros(size // 2, np.int64)
            if low < self._low:  # the present bins become the upper half
                self._fine = np.concatenate([empty, pairs])
                self._low -= size * self._width
            else:
                self._fine = np.concatenate([pairs, empty])
            self._width *= 2

    def result(self) -> Distribution:
        """Return the distribution of everything that was added."""
        if self._whole is not None and self._tensors == 1:
            return self._whole
        count, nan, posinf, neginf, zeros = self._counts.tolist()
        counts = (count, nan, posinf, neginf, zeros)
        finite = count - nan - posinf - neginf
        if not finite:
            return Distribution(*counts)
        step, second, third, fourth = self._sums / finite
        variance = max(second - step**2, 0.0)
        std = math.sqrt(variance)
        around3 = third - 3 * step * second + 2 * step**3
        around4 = fourth - 4 * step * third + 6 * step**2 * second - 3 * step**4
        has_shape = std > 0
        coarse = self._fine.reshape(self._bins, FINE).sum(1)
        edges = self._low + self._width * FINE * np.arange(self._bins + 1)
        return Distribution(
            *counts,
            mean=float(self._middle + step),
            std=std,
            min=self._min,
            max=self._max,
            rms=math.sqrt(self._squares / finite),
            skew=float(around3 / std**3) if has_shape else None,
            kurtosis=float(around4 / variance**2 - 3) if has_shape else None,
            quantiles=self._quantiles(finite),
            edges=tuple(edges.tolist()),
            counts=tuple(coarse.tolist()),
            exact=False,
        )

    def _quantiles(self, finite: int) -> tuple[float, ...]:
        below = np.concatenate([[0], np.cumsum(self._fine)])
        edges = self._low + self._width * np.arange(self._fine.size + 1)
        found = np.interp(np.array(QUANTILES) * finite, below, edges)
        return tuple(np.clip(found, self._min, self._max).tolist())


def _counts(numbers: Numbers, finite: Numbers, ordered: Sorted) -> tuple[int, int, int, int, int]:
    zero = ordered.dtype.type(0)
    zeros = int(np.searchsorted(ordered, zero, "right") - np.searchsorted(ordered, zero, "left"))
    if finite.size == numbers.size:
        return numbers.size, 0, 0, 0, zeros
    nan, posinf = int(np.isnan(numbers).sum()), int(np.isposinf(numbers).sum())
    return numbers.size, nan, posinf, numbers.size - finite.size - nan - posinf, zeros


def _in_bins(ordered: Sorted, edges: Numbers) -> npt.NDArray[np.int64]:
    """Return the numbers in each bin, which has its lower edge and not its upper one; the last bin has both."""
    keys = edges.astype(ordered.dtype)  # of another dtype, they would copy all numbers
    keys = np.where(keys < edges, np.nextafter(keys, np.array(np.inf, keys.dtype)), keys)
    places = np.searchsorted(ordered, keys, "left")
    places[0], places[-1] = 0, ordered.size
    return np.diff(places)


def _of_one(
    counts: tuple[int, int, int, int, int], wide: Numbers, ordered: Sorted, apart: Numbers, squares: Numbers, bins: int
) -> Distribution:
    variance = float(squares.mean())
    std, mean = math.sqrt(variance), float(wide.mean())
    has_shape = std > 1e-12 * max(abs(mean), 1e-300)
    edges = edges_between(float(ordered[0]), float(ordered[-1]), bins)
    return Distribution(
        *counts,
        mean=mean,
        std=std,
        min=float(ordered[0]),
        max=float(ordered[-1]),
        rms=float(np.sqrt(np.mean(wide**2))),
        skew=float(np.dot(squares, apart) / apart.size / std**3) if has_shape else None,
        kurtosis=float(np.dot(squares, squares) / apart.size / variance**2 - 3) if has_shape else None,
        quantiles=tuple([_quantile(ordered, share) for share in QUANTILES]),
        edges=tuple(edges.tolist()),
        counts=tuple(_in_bins(ordered, edges).tolist()),
    )


def _quantile(ordered: Sorted, share: float) -> float:
    """Return a quantile of ordered numbers, as ``numpy.quantile`` does: by a line between two of them."""
    place = share * (ordered.size - 1)
    low = int(place)
    pair = ordered[[low, min(low + 1, ordered.size - 1)]].astype(np.float64)
    return float(np.quantile(pair, place - low))


def robust_outliers(ordered: Sorted, limit: float) -> tuple[int, float] | None:
    """Return how many elements are beyond ``limit`` robust deviations, and the largest one in these deviations.

    ``ordered`` are finite numbers, the smallest first. The robust deviation is 1.4826 times the median distance from
    the median (Iglewicz, Hoaglin 1993). ``None`` where half of all elements are alike.
    """
    if not ordered.size:
        return None
    middle = _quantile(ordered, 0.5)
    low, high = 0.0, max(middle - float(ordered[0]), float(ordered[-1]) - middle)
    largest = high
    for _ in range(60):  # the distance that half of all elements are within
        half = (low + high) / 2
        if 2 * _within(ordered, middle, half) >= ordered.size:
            high = half
        else:
            low = half
    unit = 1.4826 * high
    if unit <= 1e-9 * largest or not unit:
        return None
    return ordered.size - _within(ordered, middle, limit * unit), largest / unit


def _within(ordered: Sorted, middle: float, distance: float) -> int:
    """Return how many numbers are at most ``distance`` from ``middle``."""
    low, high = np.array([middle - distance, middle + distance], ordered.dtype)  # another dtype would copy them all
    return int(np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left"))
