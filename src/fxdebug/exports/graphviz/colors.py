"""Colours of a drawing: by status, by a statistic, and red for NaN, Inf and exceptions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fxdebug.data.graphs import Status
from fxdebug.data.values import Stats
from fxdebug.exports.graphviz.drawing import Step
from fxdebug.exports.graphviz.options import Coloring

LINE, GREY, RED = "#8a8a94", "#5f5f68", "#c62828"
WHITE, BAD_FILL = "#ffffff", "#f7c6c5"
STATUS_FILLS: dict[Status | None, str] = {
    "verified": "#dff0e1", "recorded": "#fbe3b0", "opaque": "#d5d6de", None: "#f1f1f4",
}  # fmt: skip
SCALE = ("#f7fbff", "#e3eef9", "#cfe1f2", "#b5d4e9", "#9fcae3", "#88bcdc", "#6daed5")


def is_bad(stats: Stats | None) -> bool:
    """Is there a NaN or an infinity?"""
    return stats is not None and stats.finite < stats.count


class Colors:
    """The fill colour of every step of a drawing, and the range of the statistic that colours them."""

    def __init__(self, steps: Mapping[str, Step], coloring: Coloring) -> None:
        self.coloring = coloring
        self.stats = {id: step.stats for id, step in steps.items()}  # pooled over repetitions, once
        amounts = [amount for step in steps.values() if (amount := self.amount(step)) is not None]
        self.range = (min(amounts), max(amounts)) if amounts else (0.0, 0.0)

    def fill(self, step: Step) -> str:
        """Return the fill colour of an operation or a call."""
        if is_bad(self.stats[step.id]) or step.failed:
            return BAD_FILL
        if self.coloring == "status":
            return STATUS_FILLS.get(step.status, STATUS_FILLS[None])
        amount = self.amount(step)
        if amount is None:
            return WHITE
        low, high = self.range
        share = 0.0 if high <= low else (amount - low) / (high - low)
        return SCALE[min(int(share * len(SCALE)), len(SCALE) - 1)]

    def amount(self, step: Step) -> float | None:
        """Return the position of a step on the colour scale; none for token ids, masks and rearranging operations."""
        if step.kind not in ("op", "call") or not step.values:
            return None
        if step.values[0].dtype.startswith(("int", "uint", "bool")):
            return None
        return _scaled(self.stats[step.id], self.coloring)


# The scale: zeros by their share, the rest by logarithm of magnitude, with its sign ---------------


def _scaled(stats: Stats | None, coloring: Coloring) -> float | None:
    if stats is None or coloring in ("none", "status"):
        return None
    if coloring == "zeros":
        return stats.zeros / stats.count if stats.count else None
    number = getattr(stats, coloring)
    if number is None:
        return None
    number = abs(number) if isinstance(number, complex) else number
    return math.copysign(math.log1p(abs(number) * 1e3), number)


def unscaled(amount: float, coloring: Coloring) -> float:
    """Return the number at a position on the colour scale."""
    return amount if coloring == "zeros" else math.copysign(math.expm1(abs(amount)) / 1e3, amount)
