"""TODO"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fxdebug.comparison.measures import TENSORS, Measures, Unlike
from fxdebug.comparison.tolerance import MASK_THRESHOLD, error_between, is_additive_mask, is_masked
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS

CHUNK = 1 << 22  # elements compared at a time


def measure_elements(one: Any, other: Any, tolerance: float, a: Value, b: Value) -> Measures:
    """All measures in float64, piece by piece."""
    one, other = one.detach().reshape(-1), other.detach().reshape(-1)
    hidden = MASK_THRESHOLD if is_masked(a.stats) and is_masked(b.stats) else -math.inf
    top = _largest_finite(one, hidden)
    limit = tolerance * top
    squares = total = worst = dots = ones = others = 0.0
    beyond = count = nonfinite = farthest = 0
    for start in range(0, one.numel(), CHUNK):
        x, y = one[start : start + CHUNK], other[start : start + CHUNK]
        if x.dtype == y.dtype:
            farthest = max(farthest, _largest_ulp(x, y))
        x, y = _as_float64(x), _as_float64(y)
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
        if is_additive_mask(a.stats) and is_additive_mask(b.stats):
            error = error_between(a.stats, b.stats) or 0.0
        else:
            error, what = math.inf, "nonfinite"
    elif is_additive_mask(a.stats) and is_additive_mask(b.stats):
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


def _largest_finite(one: Any, hidden: float) -> float:
    """The largest finite element, without those that a mask hides."""
    top = 0.0
    for start in range(0, one.numel(), CHUNK):
        piece = _as_float64(one[start : start + CHUNK])
        piece = piece[piece.isfinite() & (piece > hidden)]
        if piece.numel():
            top = max(top, float(piece.abs().max()))
    return top


def sorted_nonzero(tensors: Iterable[Any]) -> Any:
    """All elements but zeros, from the least to the largest: rounding changes no places among them."""
    import torch

    with torch.no_grad():
        held = torch.cat([_as_float64(x.to_dense() if x.is_sparse else x).reshape(-1) for x in tensors])
        return held[held != 0].sort().values


def _as_float64(x: Any) -> Any:
    import torch

    if x.dtype.is_complex:
        return torch.view_as_real(x.to(torch.complex128)).reshape(-1)
    return x.to(torch.float64)


def _largest_ulp(x: Any, y: Any) -> int:
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
