"""The legend above a drawing: the model, how much of it is drawn, and the meaning of the colours."""

from __future__ import annotations

from fxdebug.data.graphs import Status
from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.colors import (
    BAD_FILL,
    CARRIED,
    GREY,
    LINE,
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
from fxdebug.exports.drawing.escaping import html, shortened
from fxdebug.exports.drawing.marks import NO_MARKS, Marks

_STATUS_MEANINGS: dict[Status, str] = {
    "verified": "verified", "recorded": "recorded: as it ran", "opaque": "opaque: nothing inside can be seen",
}  # fmt: skip


def legend_label(trace: TraceData, drawing: Drawing, colors: Colors, marks: Marks | None) -> str:
    """Return the legend as an HTML-like table."""
    deepest = max(call.depth for call in trace.calls) + 1
    facts = [f"{len(trace.calls)} calls", f"{len(drawing.steps)} nodes drawn", *(marks or NO_MARKS).facts]
    if drawing.depth is not None and drawing.depth < deepest:
        facts.append(f"calls {drawing.depth} levels down are closed")
    name, known = shortened(trace.model), " · ".join(facts)
    rows = f'<TR><TD ALIGN="LEFT"><B><FONT POINT-SIZE="15">{html(name)}</FONT></B></TD></TR>'
    rows += f'<TR><TD ALIGN="LEFT">{_small(known)}</TD></TR>'
    meanings = meanings_of(drawing, colors, marks)
    if meanings:
        cells = "".join(_swatch(color) + (f"<TD>{_small(text)}&#160;</TD>" if text else "") for color, text in meanings)
        # an empty cell about as wide as the rest of the row: dot would stretch the swatches to fill it
        rest = max(10 * len(name), 5 * len(known)) - sum(20 + 5 * len(text) for _, text in meanings)
        cells += f'<TD WIDTH="{rest}"></TD>' if rest > 0 else ""
        table = f'<TABLE BORDER="0" CELLSPACING="3" CELLPADDING="1"><TR>{cells}</TR></TABLE>'
        rows += f'<TR><TD ALIGN="LEFT">{table}</TD></TR>'
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="2">{rows}</TABLE>>'


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


def _swatch(color: str) -> str:
    size = 'FIXEDSIZE="TRUE" WIDTH="14" HEIGHT="10"'
    return f'<TD BGCOLOR="{color}" BORDER="1" COLOR="{LINE}" {size}></TD>' if color else ""


def _small(text: str) -> str:
    return f'<FONT POINT-SIZE="9" COLOR="{GREY}">{html(text)}</FONT>'
