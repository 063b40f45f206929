"""Reasons, seen in a weight and in what quantisation made of it, for which a layer loses more than others."""

from __future__ import annotations

import torch
from torch import Tensor

OUTLIER = 8.0  # times the median of the channels, from which the largest weight of one is an outlier
WORSE = 3.0  # times the error of the outlier's channel that the others have, if the outlier is to blame
BEYOND = 1.05  # times the largest weight that b has in a channel: weights of a beyond it were cut off
FEW = 127 / OUTLIER  # steps that 8 bits leave to channels beside an outlier
LEVELS = 8  # values in a channel: with fewer, one step may be as large


def reason_of(original: Tensor, quantised: Tensor | None) -> str:
    """Say what is seen in a weight: channels that became 0, weights that were cut off, outliers; empty for nothing.

    ``quantised`` is the weight of b in numbers, ``None`` where it cannot be read. With it, an outlier is told only
    where the other channels lost more than its own.

    >>> weight = torch.linspace(-1, 1, 64).view(8, 8)
    >>> weight[3, 3] = 40.0
    >>> reason_of(weight, (weight / 0.3).round() * 0.3)
    'the largest |w| of row 3 is 54 times the median of the rows: the others share few steps'
    """
    if original.ndim < 2 or not original.is_floating_point() or not original.numel():
        return ""
    rows = original.detach().reshape(len(original), -1).double().cpu()
    if not bool(rows.isfinite().all()):
        return ""
    theirs = None
    if quantised is not None and quantised.shape == original.shape:
        theirs = quantised.detach().reshape(len(original), -1).double().cpu()
        gone = (theirs == 0).all(1) & (rows != 0).any(1)
        if bool(gone.any()):
            return f"{int(gone.sum())} of {len(rows)} rows of its weight are 0 in b"
        if cut := _cut_off(rows, theirs):
            return f"{cut} of {rows.numel()} elements of its weight are beyond the range of b: they are cut off"
    return _outlier(rows, theirs, "row") or _outlier(rows.T, None if theirs is None else theirs.T, "column")


def _cut_off(rows: Tensor, theirs: Tensor) -> int:
    """Count the weights that are larger than all that b has in their channel, in channels of many values."""
    count = 0
    top = theirs.abs().amax(1, keepdim=True)
    beyond = (rows.abs() > BEYOND * top) & (theirs.abs() >= top)
    for row in beyond.any(1).nonzero().flatten().tolist():
        if theirs[row].abs().unique().numel() >= LEVELS:
            count += int(beyond[row].sum())
    return count


def _outlier(rows: Tensor, theirs: Tensor | None, name: str) -> str:
    """Say which channel has a weight that is large beside those of the others, if these lost by it."""
    top = rows.abs().amax(1)
    at, median = int(top.argmax()), float(top.median())
    if not median or float(top[at]) < OUTLIER * median:
        return ""
    if theirs is not None:
        lost = (theirs - rows).norm(dim=1) / rows.norm(dim=1).clamp_min(1e-30)
        if float(lost.median()) < WORSE * float(lost[at]):
            return ""
        if not _share_few_steps(theirs if name == "row" else theirs.T, at, name):
            return ""
    share = ": the others share few steps" if theirs is not None else ""
    return f"the largest |w| of {name} {at} is {float(top[at]) / median:.0f} times the median of the {name}s{share}"


def _share_few_steps(theirs: Tensor, at: int, name: str) -> bool:
    """Are the weights beside the outlier few multiples of one step in each row? Those of a floating dtype are not."""
    others = torch.cat([theirs[:at], theirs[at + 1 :]]) if name == "row" else _without_column(theirs, at)
    few = 0
    for row in others.abs():
        levels = row[row > 0]
        if levels.numel():
            multiples = levels / levels.min()
            few += bool(multiples.max() <= FEW and (multiples - multiples.round()).abs().max() < 0.05)
    return 2 * few >= len(others)


def _without_column(matrix: Tensor, at: int) -> Tensor:
    return torch.cat([matrix[:, :at], matrix[:, at + 1 :]], dim=1)


def numbers_of(weight: object) -> Tensor | None:
    """Return a weight of a quantised module as numbers, ``None`` where it cannot be read.

    >>> numbers_of(torch.ones(2)), numbers_of(torch.ones(2, dtype=torch.int8))
    (tensor([1., 1.]), None)
    """
    try:
        found = weight() if callable(weight) and not isinstance(weight, Tensor) else weight
        if not isinstance(found, Tensor):
            return None
        plain = found.detach()
        plain = plain.dequantize() if plain.is_quantized or type(plain) is not Tensor else plain
    except Exception:  # of a class of weights that has another way
        return None
    return plain if isinstance(plain, Tensor) and plain.is_floating_point() else None
