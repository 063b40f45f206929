"""Steps that are too coarse: one for each row, or for a whole weight, where parts of it are far smaller than others."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

GROUPS = (128, 64, 32, 16)  # columns with a step of their own, in formats in use
WORSE = 3.0  # times the error with finer steps, from which the step is too coarse
LARGE = 0.3  # of the size of a row or column, as 2 to 3 bits leave
AS_GOOD = 1.5  # times the error of the smallest groups that larger ones may leave
INTEGER = 0.05  # of a step, by which multiples may be beside whole numbers
MOST_STEPS = 127  # of 8 bits
MOST = 1 << 22  # elements of a weight that is looked at
ROWS = 0.8  # of the rows that have one step


@dataclass(frozen=True)
class Finer:
    """A weight with a step for each of ``parts``; ``before`` and ``after`` are what a column, or a row, loses."""

    weight: Tensor
    steps: str
    parts: str
    before: float
    after: float

    @property
    def text(self) -> str:
        """The reason in words."""
        return (
            f"{self.steps}: a {self.channel} loses {self.before:.2g} of its size on average; with one for each "
            f"{self.parts} {self.after:.2g}"
        )

    @property
    def channel(self) -> str:
        """The name of what loses: a row or a column."""
        return self.parts.rpartition(" ")[2].removesuffix("s")


def finer_steps(original: Tensor, used: Tensor) -> Finer | None:
    """Return a weight rounded with a step for each row, or for each group of columns, where that is far nearer.

    ``used`` is the weight that b computes with: multiples of one step, or of one in each row. ``None`` where its steps
    are fine enough, or are finer already, or are none, as those of a floating dtype.

    >>> import torch
    >>> weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    >>> weight[:, :16] *= 30
    >>> step = weight.abs().amax(1, keepdim=True) / 7
    >>> finer_steps(weight, (weight / step).round() * step).parts
    'block of 16 columns'
    """
    if original.shape != used.shape or original.ndim < 2 or not 0 < original.numel() <= MOST:
        return None
    one, other = (x.detach().double().cpu().reshape(len(x), -1) for x in (original, used))
    if not bool(one.isfinite().all()) or not bool(other.isfinite().all()):
        return None
    of_whole = _steps(other.flatten())
    if of_whole:
        rounded = _rounded(one, one.shape[1], of_whole)
        return _better(original, one, other, rounded, "one step for the whole weight", "row")
    counts = [_steps(row) for row in other]
    if sum(map(bool, counts)) < ROWS * len(counts):
        return None
    found = []
    for size in GROUPS:
        if one.shape[1] % size or one.shape[1] < 2 * size:
            continue
        rounded = _rounded(one, size, max(counts))
        better = _better(original, one, other, rounded, "one step for each row", f"block of {size} columns")
        if better is not None:
            found.append(better)
    least = min((each.after for each in found), default=0.0)
    return next((each for each in found if each.after <= AS_GOOD * least), None)


def _steps(numbers: Tensor) -> int:
    """Return of how many steps the largest of some numbers is, where all are multiples of one; else 0."""
    levels = numbers.abs().unique()
    gaps = levels.diff(prepend=levels.new_zeros(1))
    gaps = gaps[gaps > 1e-6 * levels[-1]]
    if not gaps.numel() or levels.numel() > MOST_STEPS + 2:
        return 0
    multiples = levels / gaps.min()
    whole = bool((multiples - multiples.round()).abs().max() < INTEGER) and float(multiples[-1]) < MOST_STEPS + 1.5
    return int(multiples[-1].round()) if whole else 0


def _rounded(weight: Tensor, size: int, steps: int) -> Tensor:
    """Return a weight rounded to so many steps on either side of 0, with a step for each group of columns."""
    groups = weight.reshape(len(weight), -1, size)
    step = groups.abs().amax(-1, keepdim=True).clamp_min(1e-30) / steps
    return ((groups / step).round() * step).reshape_as(weight)


def _better(original: Tensor, one: Tensor, other: Tensor, rounded: Tensor, steps: str, parts: str) -> Finer | None:
    dim = 1 if parts == "row" else 0
    before, after = (_mean_loss(one, each, dim) for each in (other, rounded))
    if before < LARGE or before < WORSE * after:
        return None
    return Finer(rounded.reshape(original.shape).to(original), steps, parts, before, after)


def _mean_loss(one: Tensor, other: Tensor, dim: int) -> float:
    """Return what a row (``dim`` 1) or a column loses on average, of its size."""
    sizes = one.norm(dim=dim)
    kept = sizes > 0
    return float(((other - one).norm(dim=dim)[kept] / sizes[kept]).mean()) if bool(kept.any()) else 0.0
