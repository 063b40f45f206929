"""A run as a picture: in the layout of its page, or in one that a feature brings."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from fxdebug.data.calls import Call
from fxdebug.data.measures import names_in
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.exports.drawing.colors import require_colors
from fxdebug.exports.drawing.options import DEFAULTS, KIND, NONE, STATUS, DrawOptions
from fxdebug.exports.page.bodies import Bodies, bodies_of, body_columns
from fxdebug.exports.page.pack import Column, Texts
from fxdebug.exports.picture.engine import LayoutEngine
from fxdebug.exports.picture.layouts import drawn_in
from fxdebug.exports.picture.looks import Looks
from fxdebug.exports.picture.raster import Raster
from fxdebug.exports.picture.shown import keyed_boxes, shown
from fxdebug.exports.picture.standing_out import standing_out
from fxdebug.files.write_file import write_bytes, write_text
from fxdebug.printable import printable

MOST = 3_000  # items of one picture


def write_picture(trace: TraceData, path: Path, options: DrawOptions = DEFAULTS) -> Path:
    """Write a picture of a run as ``.svg``, ``.png`` or ``.pdf``.

    Raises ``UsageError`` for more than 3,000 items, with the depth that can be drawn, and ``MissingExtra`` without the
    libraries that draw.
    """
    if options.other_layout:
        return drawn_in(options.other_layout, "trace")(trace, path, options)
    return write_svg(path, lambda: svg_text(trace, options))


def write_svg(path: Path, draw: Callable[[], str]) -> Path:
    """Write SVG text to ``.svg``, or convert it to ``.png`` or ``.pdf``, whose library is required before drawing."""
    if path.suffix.lower() == ".svg":
        return write_text(path, draw())
    raster = Raster()
    svg = draw()
    return write_bytes(path, raster.pdf(svg) if path.suffix.lower() == ".pdf" else raster.png(svg, *_size(svg)))


def svg_text(trace: TraceData, options: DrawOptions = DEFAULTS) -> str:
    """Return the picture of a run as SVG text."""
    require_colors(trace, options)
    texts = Texts()
    bodies = bodies_of(trace, texts, _apart(trace, options))
    engine = LayoutEngine()
    asked = {*names_in(options.measures), *({options.color} - {KIND, STATUS, NONE})}
    begun = engine.begin(request(trace, bodies, texts, options, lines=len(asked)))
    if begun["root"] is None:
        raise UsageError(
            f"{begun['count']} items are more than a picture can show ({MOST}): {_remedy(begun['depth'], options)}, "
            "or export .html, which has no limit"
        )
    drawing = shown(trace, bodies, begun["root"])
    looks = Looks(trace, drawing, options)
    decorations = {key: looks.of_step(step) for key, step in drawing.steps.items()}
    decorations |= {key: looks.of_box(box) for key, box in keyed_boxes(drawing, begun["root"])}
    about = printable(f"{trace.model}: {len(trace.calls)} calls")
    legend = looks.legend()
    return engine.draw({"decorations": decorations, "legend": legend, "theme": options.theme, "about": about})


def _apart(trace: TraceData, options: DrawOptions) -> Callable[[Call], Hashable]:
    """Return a key in which calls differ that have another colour than their like."""
    if options.color in (KIND, STATUS, NONE):
        return lambda call: None
    found = standing_out(trace, options.color)
    return lambda call: True if call.index in found else None


def request(
    trace: TraceData,
    bodies: Bodies,
    texts: Texts,
    options: DrawOptions,
    *,
    lines: int,
    opened: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return ``Request`` of picture.ts; ``lines`` of numbers have room in each item, calls of ``opened`` are open."""
    columns = body_columns(bodies).items()
    lists = {name: one.numbers.tolist() if isinstance(one, Column) else one for name, one in columns}
    return {
        "bodies": {**lists, "texts": texts.listed},
        "name": printable(trace.model),
        "type": printable(trace.calls[0].type),
        "lines": lines,
        "most": MOST,
        "depth": options.depth,
        "leaves": options.leaves,
        "fold": options.fold,
        "opened": opened,
    }


def _remedy(depth: int, options: DrawOptions) -> str:
    """Return advice with the largest depth that can be drawn."""
    folded = "" if options.fold else "leave repeated layers folded"
    if depth < 0:
        return folded or "give depth=0"
    return f"give depth={depth}" + (f" or {folded}" if folded else "")


def _size(svg: str) -> tuple[float, float]:
    found = re.search(r'width="(\d+)" height="(\d+)"', svg)
    assert found is not None
    return float(found[1]), float(found[2])
