"""Colours of a picture: by status, by statistic, for what is bad."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

from fxdebug.data.values import Stats

Coloring: TypeAlias = Literal["status", "mean", "std", "min", "max", "absmax", "zeros", "none"]
LINE, GREY = "#8a8a94", "#5f5f68"
COLORS: tuple[Coloring, ...] = get_args(Coloring)

STATUS = {"verified": "#dff0e1", "recorded": "#fbe3b0", "opaque": "#d5d6de", None: "#f1f1f4"}
MEANING = {
    "verified": "verified", "recorded": "recorded: as it ran", "opaque": "opaque: nothing inside can be seen",
}  # fmt: skip
BAD_FILL = "#f7c6c5"
SCALE = ("#f7fbff", "#e3eef9", "#cfe1f2", "#b5d4e9", "#9fcae3", "#88bcdc", "#6daed5")


def swatch(color: str) -> str:
    size = 'FIXEDSIZE="TRUE" WIDTH="14" HEIGHT="10"'
    return f'<TD BGCOLOR="{color}" BORDER="1" COLOR="{LINE}" {size}></TD>' if color else ""


# How strongly to colour ---------------------------------------------------------------------------


def strength(stats: Stats | None, name: str) -> float | None:
    """How strongly to colour: magnitudes on a logarithmic scale, signs kept."""
    if stats is None or name in ("none", "status"):
        return None
    if name == "zeros":
        return stats.zeros / stats.count if stats.count else None
    found = getattr(stats, name)
    if found is None:
        return None
    found = abs(found) if isinstance(found, complex) else found
    return math.copysign(math.log1p(abs(found) * 1e3), found)


def undone(amount: float, name: str) -> float:
    """The number behind an amount."""
    return amount if name == "zeros" else math.copysign(math.expm1(abs(amount)) / 1e3, amount)
