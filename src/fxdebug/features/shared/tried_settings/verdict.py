"""The verdict on a change that was tried: take it, take it with a changed result, or refuse it, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, TypeAlias

Verdict: TypeAlias = Literal["take", "changes the result", "refused"]
TAKE: Final = "take"
CHANGES: Final = "changes the result"
REFUSED: Final = "refused"
VERDICTS: Final = (TAKE, CHANGES, REFUSED)  # the best first

ROUNDING = 1e-5  # of the largest number: what another order of sums changes in float32
SANE = 0.1  # a change beyond this share of the largest number is another result, not a rounded one
WORTH = 1.03  # a gain below is not worth a line of code
BUSY = 1.3  # the ratio of the ends of the control's interval from which on the machine is too busy to tell


@dataclass(frozen=True)
class Gain:
    """The gain of a change, in times as fast: the median of the pairs, and an interval that holds it with 95 %."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def gain_of(before: Sequence[int], after: Sequence[int]) -> Gain:
    """Return how many times as fast the second is, by pairs; the interval is that of the sign test.

    >>> gain_of([20] * 7, [10] * 6 + [20])
    Gain(median=2.0, low=1.0, high=2.0)
    """
    ratios = sorted([one / other for one, other in zip(before, after, strict=True)])
    count, dropped = len(ratios), 0
    while dropped + 1 < count // 2 and _outside(count, dropped + 1) <= 0.05:
        dropped += 1
    return Gain(median(ratios), ratios[dropped], ratios[-1 - dropped])


def _outside(count: int, dropped: int) -> float:
    """Return the chance that the true median lies outside of the interval without ``dropped`` ratios at each end."""
    return 2 * sum(math.comb(count, k) for k in range(dropped + 1)) / 2.0**count


@dataclass(frozen=True)
class Change:
    """The largest change of a result, as a share of the largest number of its tensor, where it is, and agreements.

    ``agreement`` is the share of rows with the same largest element, in %; ``None`` where there are none.
    ``form`` says what is different about the form of the result, if it is.
    """

    largest: float = 0.0
    where: str = ""
    agreement: float | None = None
    form: str = ""


def verdict_of(
    gain: Gain, again: Gain | None, control: Gain, change: Change, tolerance: float | None
) -> tuple[Verdict, str]:
    """Return the verdict and its reason. ``again`` is a second measurement, of what the first would take.

    A gain counts where its whole interval is above the control's, twice. ``tolerance`` is the change of the result that
    may be taken; without one, it is that of rounding.

    >>> verdict_of(Gain(1.5, 1.4, 1.6), Gain(1.5, 1.4, 1.6), Gain(1.0, 0.98, 1.02), Change(), None)[0]
    'take'
    """
    if change.form:
        return REFUSED, f"the result has another form: {change.form}"
    if not change.largest <= SANE and not (tolerance is not None and change.largest <= tolerance):
        return REFUSED, f"another result: {change.where} changes by {change.largest:.1g} of its largest number"
    bar = max(control.high, WORTH)
    measured = [gain] if again is None else [gain, again]
    if min(one.low for one in measured) <= bar or again is None:
        if gain.high < min(control.low, 1.0):
            return REFUSED, "slower"
        if is_busy(control):
            return REFUSED, f"cannot tell: the machine is too busy, the control alone spans {control.low:.2f} to " + (
                f"{control.high:.2f}"
            )
        return REFUSED, "no gain beyond the noise"
    if change.largest > (ROUNDING if tolerance is None else tolerance):
        return CHANGES, f"{change.where} changes by {change.largest:.1g} of its largest number"
    return TAKE, ""


def may_gain(gain: Gain, control: Gain) -> bool:
    """Is a first measurement so good that a second one is worth its time?"""
    return gain.low > max(control.high, WORTH)


def is_busy(control: Gain) -> bool:
    """Do repeated runs of the same code differ so much that no gain can be measured?"""
    return control.high > BUSY * control.low
