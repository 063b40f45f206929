"""Measure two tensors element by element, in float64 and a chunk at a time.

torch is imported where it is needed: comparing two saved runs by their statistics loads none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fxdebug.comparison.measures import TENSORS, Measures, Unlike
from fxdebug.comparison.thresholds import CLOSER, MASK
from fxdebug.comparison.tolerance import error_between, is_additive_mask, is_masked, rounding_step
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.stats.elements import elements

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 22  # elements compared at a time


def measure_elements(one: Tensor, other: Tensor, tolerance: float, a: Value, b: Value) -> Measures:
    """Return all measures of two tensors of equal size, the data of the values ``a`` and ``b``.

    Positions that an additive mask hides on both sides do not count.
    """
    one, other = one.detach().reshape(-1), other.detach().reshape(-1)
    hidden = -MASK if is_masked(a.stats) and is_masked(b.stats) else -math.inf
    top = _largest_finite(one, hidden)
    limit = tolerance * top
    squared_differences = differences = largest = products = squares_a = squares_b = 0.0
    beyond = count = nonfinite = ulp = 0
    for start in range(0, one.numel(), CHUNK):
        x, y = one[start : start + CHUNK], other[start : start + CHUNK]
        if x.dtype == y.dtype:
            ulp = max(ulp, _largest_ulp(x, y))
        x, y = _as_float64(x), _as_float64(y)
        visible = (x > hidden) | (y > hidden)
        measurable = x.isfinite() & y.isfinite() & visible
        if not bool(measurable.all()):
            unequal = ~(x.isfinite() & y.isfinite()) & (x != y) & ~(x.isnan() & y.isnan())
            nonfinite += int((unequal & visible).sum())
            x, y = x[measurable], y[measurable]
        gap = (x - y).abs()
        if gap.numel():
            largest = max(largest, float(gap.max()))
        squared_differences += float((gap * gap).sum())
        differences += float(gap.sum())
        products += float((x * y).sum())
        squares_a += float((x * x).sum())
        squares_b += float((y * y).sum())
        beyond += int((gap > limit).sum())
        count += int(gap.numel())
    relative = math.sqrt(squared_differences / squares_a) if squares_a else (math.inf if squared_differences else 0.0)
    error = max(relative, largest / top) if top else relative
    if a.dtype not in EPS:  # for indices and masks: how many differ, not by how much
        error = beyond / count if count else 0.0
    what: Unlike = ""
    if is_additive_mask(a.stats) and is_additive_mask(b.stats):
        error = error_between(a.stats, b.stats) or 0.0
    elif nonfinite:
        error, what = math.inf, "nonfinite"
    return Measures(
        error,
        TENSORS,
        what,
        max_abs=largest,
        mean_abs=differences / count if count else 0.0,
        relative=relative,
        cosine=_cosine(products, squares_a, squares_b),
        sqnr=_decibels(relative),
        beyond=(beyond + nonfinite) / max(count + nonfinite, 1),
        ulp=ulp if one.dtype == other.dtype and a.dtype in EPS else None,
    )


def _decibels(relative: float) -> float:
    """Return the signal to noise ratio of a relative error."""
    if 0.0 < relative < math.inf:
        return -20.0 * math.log10(relative)
    return math.inf if relative == 0.0 else -math.inf


def _cosine(products: float, squares_a: float, squares_b: float) -> float:
    if not squares_a or not squares_b:
        return 1.0 if squares_a == squares_b else 0.0
    return max(-1.0, min(1.0, products / (math.sqrt(squares_a) * math.sqrt(squares_b))))


def _largest_finite(one: Tensor, hidden: float) -> float:
    """Return the size of the largest finite element, without those that a mask hides."""
    top = 0.0
    for start in range(0, one.numel(), CHUNK):
        piece = _as_float64(one[start : start + CHUNK])
        piece = piece[piece.isfinite() & (piece > hidden)]
        if piece.numel():
            top = max(top, float(piece.abs().max()))
    return top


def sorted_nonzero(tensors: Iterable[Tensor]) -> Tensor:
    """Return all elements but zeros in ascending order, which rounding does not change."""
    import torch

    with torch.no_grad():
        numbers = torch.cat([_as_float64(elements(x)) for x in tensors])
        return numbers[numbers != 0].sort().values


def is_reordered(one: Tensor, other: Tensor) -> bool:
    """Do two tensors hold the same numbers but for rounding, in different places?

    >>> import torch
    >>> x = torch.arange(6.0)
    >>> is_reordered(x, x.flip(0)), is_reordered(x, x), is_reordered(x, x + 1)
    (True, False, False)
    """
    import torch

    if one.dtype != other.dtype or one.numel() != other.numel() or not one.is_floating_point():
        return False
    if one.layout != torch.strided or other.layout != torch.strided or not one.numel():
        return False
    with torch.no_grad():
        left, right = (_as_float64(x.detach().reshape(-1)) for x in (one, other))
        distance = float((left - right).norm())
        if not 0.0 < distance < math.inf:
            return False
        limit = min(rounding_step(str(one.dtype)[6:]) * float(left.norm()), distance / CLOSER)
        return float((left.sort().values - right.sort().values).norm()) <= limit


def _as_float64(x: Tensor) -> Tensor:
    import torch

    x = x if x.device.type in ("cpu", "cuda") else x.cpu()  # others may have no float64: see stats/doubles
    if x.dtype.is_complex:
        return torch.view_as_real(x.to(torch.complex128)).reshape(-1)
    return x.to(torch.float64)


def _largest_ulp(x: Tensor, y: Tensor) -> int:
    """Return the largest distance between two elements, in units in the last place of their dtype."""
    import torch

    integers = {
        torch.float32: torch.int32,
        torch.float64: torch.int64,
        torch.float16: torch.int16,
        torch.bfloat16: torch.int16,
    }
    kind = integers.get(x.dtype)
    if kind is None or not x.numel():
        return 0
    finite = x.isfinite() & y.isfinite()
    ordinals = []
    for side in (x[finite].contiguous(), y[finite].contiguous()):
        bits = side.view(kind).to(torch.int64)
        low = torch.iinfo(kind).min
        ordinals.append(torch.where(bits < 0, low - bits, bits))  # in the order of the numbers, with one zero
    return int((ordinals[0] - ordinals[1]).abs().max()) if ordinals[0].numel() else 0
