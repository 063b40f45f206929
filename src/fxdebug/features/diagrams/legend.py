"""The legend above a drawing: the model, how much of it is drawn, and the meaning of the colours."""

from __future__ import annotations

from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.colors import (
    GREY,
    LINE,
    Colors,
)
from fxdebug.exports.drawing.drawing import Drawing
from fxdebug.exports.drawing.marks import NO_MARKS, Marks, shortened
from fxdebug.exports.drawing.meanings import meanings_of
from fxdebug.features.diagrams.escaping import html


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


def _swatch(color: str) -> str:
    size = 'FIXEDSIZE="TRUE" WIDTH="14" HEIGHT="10"'
    return f'<TD BGCOLOR="{color}" BORDER="1" COLOR="{LINE}" {size}></TD>' if color else ""


def _small(text: str) -> str:
    return f'<FONT POINT-SIZE="9" COLOR="{GREY}">{html(text)}</FONT>'
