"""The numbers about two values that should be equal: element by element where the data is there.

Only one pair of tensors is in memory at a time, and of long ones a piece of each, so runs of any size compare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from fxdebug.comparison.tolerance import LEAST_MASK, error_between, like_a_mask, masked, size_of, spread, tolerance_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, sample_positions
from fxdebug.errors import first_line
from fxdebug.operators.dtypes import EPS

Basis: TypeAlias = Literal["statistics", "sample", "tensors"]  # what numbers come from, the weakest first
Unlike: TypeAlias = Literal["", "shape", "dtype", "nonfinite", "unknown", "number", "missing", "extra"]

BASES: tuple[Basis, ...] = get_args(Basis)
TENSORS: Final = "tensors"
SAMPLE: Final = "sample"
STATISTICS: Final = "statistics"
NEARER = 8  # times: so much closer are the same numbers once they are sorted
PIECE = 1 << 22  # elements compared at a time


@dataclass(frozen=True, slots=True)
class Measures:
    """How far ``b`` is from ``a``. ``None`` is what cannot be known without the elements.

    ``error`` is what verdicts go by: the larger of the root mean square of the differences, relative to that of
    ``a``, and of the largest difference relative to the largest element; of integers and booleans the share that
    differs; with ``basis="statistics"`` a lower bound from mean, deviation and extremes. ``relative`` is the
    first of these alone, ``sqnr`` the same in decibels (signal to quantisation noise, 20·log10 of its inverse).
    ``beyond`` is the share of elements that differ by more than the
    dtype's tolerance of the largest element. ``ulp`` is the largest distance in representable numbers of the
    dtype, for equal dtypes. ``what`` says what cannot be compared: ``shape``, ``dtype``, ``nonfinite``.
    """

    error: float
    basis: Basis = STATISTICS
    what: Unlike = ""
    max_abs: float | None = None
    mean_abs: float | None = None
    relative: float | None = None
    cosine: float | None = None
    sqnr: float | None = None
    beyond: float | None = None
    ulp: int | None = None


EQUAL = Measures(0.0)


class Meter:
    """Measures pairs of values of two traces; remembers what it measured."""

    def __init__(self, a: TraceData, b: TraceData, tolerance: float | None = None) -> None:
        self._a, self._b = a, b
        self._tolerance = tolerance
        self._known: dict[tuple[int, int], Measures] = {}
        self.unread: Counter[str] = Counter()  # pairs whose data could not be read, by what was raised
        digits = [int(trace.settings["printed"]) for trace in (a, b) if "printed" in trace.settings]
        self._printed = 10.0 ** (1 - min(digits)) if digits else 0.0  # read from print: what rounding there may hide

    def tolerance(self, a: Value, b: Value) -> float:
        """The error that counts as rounding between these two."""
        return tolerance_of(a.dtype, b.dtype) if self._tolerance is None else self._tolerance

    def __call__(self, a: Value, b: Value) -> Measures:
        key = (a.number, b.number)
        if key not in self._known:
            self._known[key] = self._measure(a, b)
        return self._known[key]

    def _measure(self, a: Value, b: Value) -> Measures:
        if a.digest is not None and a.digest == b.digest:
            return _equal(a)
        by_stats = error_between(a.stats, b.stats)
        if by_stats is not None and by_stats <= self._printed:
            by_stats = 0.0
        if math.prod(a.shape) != math.prod(b.shape) and not _repeated(a, b):
            return Measures(math.inf, what="shape")
        if _squeezed(a.shape) == _squeezed(b.shape):
            if a.saved is not None and b.saved is not None:
                both = self._tensors(a, b)
                if both is not None:
                    return self._of_tensors(a, b, *both)
            sampled = self._samples(a, b)
            if sampled is not None:
                return _of_samples(a, b, *sampled, by_stats)
        if by_stats is None:
            return Measures(0.0, what="unknown")
        return Measures(by_stats, STATISTICS, "nonfinite" if _other_nonfinite(a, b) else "")

    def hold_the_same(self, a: Sequence[Value], b: Sequence[Value], relative: float, least: float) -> bool | None:
        """Do two sets of tensors hold the same numbers in whatever order, zeros aside? ``None`` without their data."""
        both = self._sorted(a, b)
        return None if both is None else bool(((both[0] - both[1]).abs() <= relative * both[0].abs() + least).all())

    def in_another_order(self, a: Value, b: Value) -> bool:
        """Do the data say that nearly the same numbers are there, and not in their places?"""
        measures, both = self(a, b), self._sorted([a], [b])
        if measures.basis != TENSORS or both is None or not 0.0 < measures.error < math.inf:
            return False
        apart, size = float((both[0] - both[1]).norm()), float(both[0].norm())
        return apart * NEARER <= (measures.relative or 0.0) * size

    def _sorted(self, a: Sequence[Value], b: Sequence[Value]) -> tuple[Any, Any] | None:
        """All numbers of either side but zeros, from the least to the largest, where the data are there."""
        if any(value.saved is None for value in (*a, *b)):
            return None
        try:
            one, other = _in_order(map(self._a.tensor, a)), _in_order(map(self._b.tensor, b))
        except Exception as error:  # as where one pair is read
            self.unread[first_line(error)] += 1
            return None
        return None if one.numel() != other.numel() else (one, other)  # some may be too small for the narrower dtype

    # Tensors -------------------------------------------------------------------------------------

    def _tensors(self, a: Value, b: Value) -> tuple[Any, Any] | None:
        try:
            return self._a.tensor(a), self._b.tensor(b)
        except Exception as error:  # deleted since, or written by a newer version: the statistics are there still
            self.unread[first_line(error)] += 1
            return None

    def _of_tensors(self, a: Value, b: Value, one: Any, other: Any) -> Measures:
        import torch

        with torch.no_grad():
            if one.is_sparse or other.is_sparse or one.layout != torch.strided:
                one, other = one.to_dense(), other.to_dense()
            if one.is_quantized or other.is_quantized:
                one, other = one.dequantize(), other.dequantize()
            if one.numel() == 0:
                return Measures(0.0, TENSORS, max_abs=0.0, mean_abs=0.0)
            return _elementwise(one, other, self.tolerance(a, b), a, b)

    # Samples -------------------------------------------------------------------------------------

    def _samples(self, a: Value, b: Value) -> tuple[Sequence[float], Sequence[float]] | None:
        """The elements at fixed positions, where one side kept only those."""
        one, other = _sample(self._a, a), _sample(self._b, b)
        return None if one is None or other is None or len(one) != len(other) else (one, other)


def _squeezed(shape: Sequence[int]) -> list[int]:
    """A shape without its dimensions of one: elements lie the same with and without."""
    return [size for size in shape if size != 1]


def _sample(trace: TraceData, value: Value) -> Sequence[float] | None:
    known = getattr(trace.data, "sample", None)
    if known is not None:
        found: Sequence[float] | None = known(value)
        return found
    if value.saved is None:
        return None
    try:
        flat = trace.tensor(value).detach().reshape(-1)
        return [_number(flat[place].item()) for place in sample_positions(flat.numel())]
    except Exception:  # as above, or of a layout without positions (sparse, nested)
        return None


def _number(item: Any) -> float:
    return abs(item) if isinstance(item, complex) else float(item)


def _of_samples(a: Value, b: Value, one: Sequence[float], other: Sequence[float], by_stats: float | None) -> Measures:
    size = 0.0 if a.stats is None else size_of(a.stats)
    top = max((abs(x) for x in one if math.isfinite(x)), default=0.0)
    scale = max(size, top)
    worst = 0.0
    for x, y in zip(one, other):
        if x != y and not (x != x and y != y):
            gap = abs(x - y)
            worst = max(worst, gap / scale if scale and math.isfinite(gap) else math.inf)
    if a.stats is not None and like_a_mask(a.stats) and b.stats is not None and like_a_mask(b.stats):
        worst = 0.0
    return Measures(max(worst, by_stats or 0.0), SAMPLE, "nonfinite" if _other_nonfinite(a, b) else "")


def _equal(a: Value) -> Measures:
    return Measures(0.0, TENSORS, "", 0.0, 0.0, 0.0, 1.0, math.inf, 0.0, 0)


def _repeated(a: Value, b: Value) -> bool:
    """Is one the other, repeated along a dimension (expanded early here, broadcast later there)?"""
    one, other = a.stats, b.stats
    if one is None or other is None or not a.numel or not b.numel or max(a.numel, b.numel) % min(a.numel, b.numel):
        return False
    same = [getattr(one, name) == getattr(other, name) for name in ("min", "max", "absmax")]
    return all(same) and abs(spread(one) - spread(other)) <= 1e-6 * (size_of(one) or 1.0)


def _other_nonfinite(a: Value, b: Value) -> bool:
    one, other = a.stats, b.stats
    if one is None or other is None or (masked(one) and masked(other)) or (like_a_mask(one) and like_a_mask(other)):
        return False
    return (one.nan > 0, one.posinf > 0, one.neginf > 0) != (other.nan > 0, other.posinf > 0, other.neginf > 0)


def _elementwise(one: Any, other: Any, tolerance: float, a: Value, b: Value) -> Measures:
    """All measures in float64, piece by piece."""
    one, other = one.detach().reshape(-1), other.detach().reshape(-1)
    hidden = LEAST_MASK if masked(a.stats) and masked(b.stats) else -math.inf
    top = _top(one, hidden)
    limit = tolerance * top
    squares = total = worst = dots = ones = others = 0.0
    beyond = count = nonfinite = farthest = 0
    for start in range(0, one.numel(), PIECE):
        x, y = one[start : start + PIECE], other[start : start + PIECE]
        if x.dtype == y.dtype:
            farthest = max(farthest, _ulp(x, y))
        x, y = _double(x), _double(y)
        fits = x.isfinite() & y.isfinite() & ((x > hidden) | (y > hidden))
        if not bool(fits.all()):
            odd = ~(x.isfinite() & y.isfinite()) & (x != y) & ~(x.isnan() & y.isnan())
            nonfinite += int((odd & ((x > hidden) | (y > hidden))).sum())
            x, y = x[fits], y[fits]
        gap = (x - y).abs()
        if gap.numel():
            worst = max(worst, float(gap.max()))
        squares += float((gap * gap).sum())
        total += float(gap.sum())
        dots += float((x * y).sum())
        ones += float((x * x).sum())
        others += float((y * y).sum())
        beyond += int((gap > limit).sum())
        count += int(gap.numel())
    relative = math.sqrt(squares / ones) if ones else (math.inf if squares else 0.0)
    error = max(relative, worst / top) if top else relative
    if a.dtype not in EPS:  # of indices and masks it counts how many are others, not by how much
        error = beyond / count if count else 0.0
    what: Unlike = ""
    if nonfinite:
        if like_a_mask(a.stats) and like_a_mask(b.stats):
            error = error_between(a.stats, b.stats) or 0.0
        else:
            error, what = math.inf, "nonfinite"
    elif like_a_mask(a.stats) and like_a_mask(b.stats):
        error = error_between(a.stats, b.stats) or 0.0
    return Measures(
        error,
        TENSORS,
        what,
        worst,
        total / count if count else 0.0,
        relative,
        _cosine(dots, ones, others),
        -20.0 * math.log10(relative) if 0.0 < relative < math.inf else (math.inf if relative == 0.0 else -math.inf),
        (beyond + nonfinite) / max(count + nonfinite, 1),
        farthest if one.dtype == other.dtype and a.dtype in EPS else None,
    )


def _cosine(dots: float, ones: float, others: float) -> float:
    if not ones or not others:
        return 1.0 if ones == others else 0.0
    return max(-1.0, min(1.0, dots / (math.sqrt(ones) * math.sqrt(others))))


def _top(one: Any, hidden: float) -> float:
    """The largest finite element, without those that a mask hides."""
    top = 0.0
    for start in range(0, one.numel(), PIECE):
        piece = _double(one[start : start + PIECE])
        piece = piece[piece.isfinite() & (piece > hidden)]
        if piece.numel():
            top = max(top, float(piece.abs().max()))
    return top


def _in_order(tensors: Iterable[Any]) -> Any:
    """All elements but zeros, from the least to the largest: rounding changes no places among them."""
    import torch

    with torch.no_grad():
        held = torch.cat([_double(x.to_dense() if x.is_sparse else x).reshape(-1) for x in tensors])
        return held[held != 0].sort().values


def _double(x: Any) -> Any:
    import torch

    if x.dtype.is_complex:
        return torch.view_as_real(x.to(torch.complex128)).reshape(-1)
    return x.to(torch.float64)


def _ulp(x: Any, y: Any) -> int:
    """The largest distance between two elements, counted in numbers that the dtype has between them."""
    import torch

    whole = {
        torch.float32: torch.int32,
        torch.float64: torch.int64,
        torch.float16: torch.int16,
        torch.bfloat16: torch.int16,
    }
    kind = whole.get(x.dtype)
    if kind is None or not x.numel():
        return 0
    fits = x.isfinite() & y.isfinite()
    places = []
    for side in (x[fits].contiguous(), y[fits].contiguous()):
        bits = side.view(kind).to(torch.int64)
        low = torch.iinfo(kind).min
        places.append(torch.where(bits < 0, low - bits, bits))  # in the order of the numbers, with one zero
    return int((places[0] - places[1]).abs().max()) if places[0].numel() else 0
