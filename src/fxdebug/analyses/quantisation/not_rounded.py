"""Weights of a quantised model that are no roundings of a's: scales along another axis, rows in another order."""

from __future__ import annotations

import torch
from torch import Tensor

LARGE = 0.3  # of the size of a weight: 3 bits leave 0.2 (Banner et al. 2019, table 1: 4 bits 0.1), 2 bits 0.45
DENSE = 0.5  # distinct values for each element of a row: 2 bits have 4 in a row or a group, as do outliers' neighbours
EXPLAINS = 0.2  # of the size of a weight that an explanation may leave, as 4 bits do, and a third of what it is without
MOST = 1 << 22  # elements of a weight that is explained
MOST_ROWS = 2048  # that are looked for among one another
VARIES = 1.1  # from the largest to the smallest factor, from which factors differ


def not_rounded(original: Tensor, used: Tensor) -> tuple[float, str] | None:
    """Return how far a weight is from the original, of its size, and an explanation, where that is no rounding.

    ``used`` is the weight as the product of b takes it, in the orientation of ``original``. ``None`` where rounding to
    few values may explain the distance, or a range that is too small. The explanation is empty where none of these is
    seen: transposed, rows or columns in another order, a factor for each row and each column, a factor and a shift for
    each row.

    >>> weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    >>> not_rounded(weight, weight.T)[1]
    'its weight is that of a transposed'
    >>> not_rounded(weight, (weight * 40).round() / 40) is None
    True
    """
    if original.shape != used.shape or original.ndim < 2 or not original.is_floating_point():
        return None
    one, other = (x.detach().double().cpu().reshape(len(x), -1) for x in (original, used))
    if not (bool(one.isfinite().all()) and bool(other.isfinite().all()) and float(one.norm())):
        return None
    distance = _distance(one, other)
    if distance < LARGE or not _is_dense(other) or _is_cut_off(one, other, distance):
        return None
    return distance, _explanation(one, other, min(EXPLAINS, distance / 3)) if one.numel() <= MOST else ""


def _distance(one: Tensor, other: Tensor) -> float:
    return float((other - one).norm() / one.norm())


def _is_dense(weight: Tensor) -> bool:
    """Have the rows about as many distinct values as elements?"""
    rows = weight[torch.linspace(0, len(weight) - 1, min(16, len(weight))).long()]
    return sum(row.unique().numel() >= DENSE * row.numel() for row in rows) > len(rows) / 2


def _is_cut_off(one: Tensor, other: Tensor, distance: float) -> bool:
    """Is it as near as rounding to the weight with what is beyond the range of b in each row cut off?"""
    top = other.abs().amax(1, keepdim=True)
    return _distance(one.clamp(-top, top), other) <= min(EXPLAINS, distance / 3)


def _explanation(one: Tensor, other: Tensor, most: float) -> str:
    if one.shape[0] == one.shape[1] and _distance(one.T, other) <= most:
        return "its weight is that of a transposed"
    for name, a, b in (("rows", one, other), ("columns", one.T, other.T)):
        order = _order(a, b)
        if order is not None and _distance(a[order], b) <= most:
            moved = int((order != torch.arange(len(order))).sum())
            return f"{moved} of {len(order)} {name} of its weight stand elsewhere in a"
    rows, columns = _factors(one, other)
    if _distance(one * rows[:, None] * columns, other) <= most:
        if _varies(rows) and _varies(columns):
            return "its weight is a's with a factor for each row and one for each column: scales along another axis"
        if not _varies(rows) and not _varies(columns):
            return f"its weight is a's times {float(rows.median()):.2g}"
        name, factors = ("row", rows) if _varies(rows) else ("column", columns)
        return f"each {name} of its weight is a's with a factor, {factors.min():.2g} to {factors.max():.2g}"
    shifted, factor = _fitted(one, other)
    if _distance(shifted, other) <= most:
        scaled = "" if not _varies(torch.cat([factor.abs(), torch.ones(1).double()])) else " a factor and"
        return f"each row of its weight is a's with{scaled} a shift: zero points are others"
    return ""


def _order(one: Tensor, other: Tensor) -> Tensor | None:
    """Return the row of a that each row of b is nearest to, if these are all rows of a."""
    if len(one) > MOST_ROWS:
        return None
    nearest = torch.cdist(other, one).argmin(1)
    return nearest if nearest.unique().numel() == len(one) else None


def _factors(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return a factor for each row and one for each column by which a weight comes nearest to another one.

    By the medians of the logarithms of the ratios, as elements that are rounded to 0 have none.
    """
    ratio = torch.where((one != 0) & (other != 0), other / one, torch.nan)
    logs = ratio.abs().log()
    rows, columns = torch.zeros(len(one)).double(), torch.zeros(one.shape[1]).double()
    for _ in range(4):
        rows = (logs - columns).nanmedian(1).values.nan_to_num()
        columns = (logs - rows[:, None]).nanmedian(0).values.nan_to_num()
    middle = columns.median() if _varies(rows.exp()) or not _varies(columns.exp()) else -rows.median()
    return (rows + middle).exp(), (columns - middle).exp()


def _fitted(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row of a weight with the factor and the shift by which it comes nearest to that of another one."""
    centred, theirs = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    factor = (centred * theirs).sum(1) / centred.square().sum(1).clamp_min(1e-30)
    return centred * factor[:, None] + other.mean(1, keepdim=True), factor


def _varies(factors: Tensor) -> bool:
    return float(factors.max()) > VARIES * float(factors.min())
