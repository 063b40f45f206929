"""The colours and arrows of a drawing, each with its meaning."""

from __future__ import annotations

from fxdebug.data.graphs import Status
from fxdebug.exports.drawing.colors import (
    BAD_FILL,
    CARRIED,
    MISSING_FILL,
    SCALE,
    STATUS_FILLS,
    UNKNOWN,
    Colors,
    is_bad,
    shown,
    unscaled,
)
from fxdebug.exports.drawing.drawing import NEXT_TURN, Drawing
from fxdebug.exports.drawing.marks import Marks

_STATUS_MEANINGS: dict[Status, str] = {
    "verified": "verified", "recorded": "recorded: as it ran", "opaque": "opaque: nothing inside can be seen",
}  # fmt: skip


def meanings_of(drawing: Drawing, colors: Colors, marks: Marks | None = None) -> list[tuple[str, str]]:
    """Return the colours and arrows that occur, each with its meaning; a colour is empty where there is none."""
    meanings: list[tuple[str, str]] = []
    steps = drawing.steps.values()
    if marks is not None:
        meanings = list(marks.meanings)
    elif colors.coloring == "status":
        present = {step.status for step in steps if step.kind in ("op", "call")}
        meanings = [(STATUS_FILLS[status], text) for status, text in _STATUS_MEANINGS.items() if status in present]
    elif colors.measure is not None:
        if colors.range[1] > colors.range[0]:
            low, high = (shown(unscaled(end, colors.measure), colors.measure) for end in colors.range)
            scale = [(color, "") for color in SCALE]
            meanings = [("", f"{colors.coloring} from {low}"), *scale, ("", f"to {high}")]
        if colors.are_missing:
            meanings.append((MISSING_FILL, f"{colors.coloring} {UNKNOWN}"))
    if marks is None and any(is_bad(stats) for stats in colors.stats.values()):
        meanings.append((BAD_FILL, "NaN or Inf"))
    if any(step.failed for step in steps):
        meanings.append((BAD_FILL, "raised"))
    kinds = {arrow.kind for arrow in drawing.arrows}
    if "memory" in kinds:
        meanings.append(("", "dashed: through memory or an object"))
    if "carried" in kinds:
        meanings.append((CARRIED, f"arrow: {NEXT_TURN} of a loop"))
    if "order" in kinds:
        meanings.append(("", "dotted: ran next, its input is not known"))
    return meanings
