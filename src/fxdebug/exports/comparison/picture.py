"""The graph of b with the result of a comparison, in the layout of the page: SVG, PNG, PDF without Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fxdebug.comparison.result import ComparisonData
from fxdebug.data.calls import Call
from fxdebug.errors import UsageError
from fxdebug.exports.comparison import marks as looks
from fxdebug.exports.drawing.drawing import Drawing
from fxdebug.exports.drawing.marks import Mark, Marks
from fxdebug.exports.drawing.options import DrawOptions, PictureLayout, RankDir, Theme
from fxdebug.exports.drawing.tooltips import about_box, about_step
from fxdebug.exports.page.bodies import Bodies, bodies_of
from fxdebug.exports.page.pack import NONE, Texts
from fxdebug.exports.picture.engine import LayoutEngine
from fxdebug.exports.picture.layouts import drawn_in
from fxdebug.exports.picture.looks import INK, RED
from fxdebug.exports.picture.shown import keyed_boxes, shown
from fxdebug.exports.picture.write import MOST, request, write_svg
from fxdebug.printable import printable

_LINES: Final = 1  # of text below a name: its error
_LONGEST = 110  # characters of the reason of a finding below the picture
_MOST_REASONS = 6


def write_picture(
    comparison: ComparisonData,
    path: Path,
    *,
    fold: bool = True,
    rankdir: RankDir = "TB",
    layout: PictureLayout | None = None,
    theme: Theme = "light",
) -> Path:
    """Write the picture; Graphviz draws it with ``layout="dot"`` and in other directions than downwards.

    Raises ``UsageError`` for more items than a picture can show, and ``MissingExtra`` without the libraries that draw.
    """
    options = DrawOptions(fold=fold, rankdir=rankdir, layout=layout, theme=theme)
    if options.other_layout:
        return drawn_in(options.other_layout, "comparison")(comparison, path, options)
    return write_svg(path, lambda: svg_text(comparison, options))


def svg_text(comparison: ComparisonData, options: DrawOptions) -> str:
    """Return the picture as SVG text."""
    trace, texts = comparison.b, Texts()
    keys = looks.CallKeys(comparison)
    bodies = bodies_of(trace, texts, keys.of)
    engine = LayoutEngine()
    for opened in _openings(comparison, bodies):
        begun = engine.begin(request(trace, bodies, texts, options, lines=_LINES, opened=opened))
        if begun["root"] is not None and (opened is None or begun["count"] <= looks.MOST or len(opened) <= 1):
            break
    if begun["root"] is None:
        raise UsageError(
            f"{begun['count']} items are more than a picture can show ({MOST}): "
            "leave repeated layers folded, or export .html, which has no limit"
        )
    drawing = shown(trace, bodies, begun["root"])
    for step in drawing.steps.values():
        drawing.stands_for |= dict.fromkeys((*step.twins, *(node.id for node in step.merged)), step.id)
    marks = looks.marks_of(comparison, drawing)
    return engine.draw(
        {
            "decorations": _decorations(drawing, begun["root"], marks, options.theme),
            "legend": [*_legend(marks), *_reasons(comparison)],
            "theme": options.theme,
            "about": printable(f"{trace.model} against {comparison.a.model}: {comparison.verdict}"),
        }
    )


def _openings(comparison: ComparisonData, bodies: Bodies) -> Iterator[list[int] | None]:
    """Yield the bodies to open: around all findings, then around fewer; ``None`` leaves the choice to the engine."""
    places = [row.b.call for row in comparison.findings if row.b is not None]
    for count in (len(places), *range(min(len(places), looks.MOST_OPENED), 0, -1)):
        yield _bodies_around(places[:count], bodies)
    yield None


def _bodies_around(calls: list[Call], bodies: Bodies) -> list[int]:
    around = set().union(*map(looks.with_ancestors, calls))
    return sorted({bodies.of_call[index] for index in around} - {NONE})


def _decorations(drawing: Drawing, root: dict[str, Any], marks: Marks, theme: Theme) -> dict[str, dict[str, Any]]:
    found = {}
    for key, step in drawing.steps.items():
        found[key] = {"title": _text(about_step(step, step.stats, ())), **_look(marks.nodes.get(step.id), theme)}
    for key, box in keyed_boxes(drawing, root):
        is_guilty = box.call is not None and box.call.index in marks.boxes
        found[key] = {"title": _text(about_box(box)), **({"line": RED[theme]} if is_guilty else {})}
    return found


def _look(mark: Mark | None, theme: Theme) -> dict[str, Any]:
    if mark is None:
        return {}
    look: dict[str, Any] = {"fill": mark.fill, "ink": INK, "dashed": mark.dashed, "lines": []}
    if mark.fill == looks.FINDING:
        kind, _, error = mark.text[0].partition(", ")
        return look | {"line": RED[theme], "badge": printable(kind), "lines": [error]}
    return look | {"lines": [printable(line) for line in mark.text]}


def _legend(marks: Marks) -> Iterator[dict[str, str]]:
    for fill, text in marks.meanings:
        yield {"fill": fill, "text": text} | ({"line": INK, "dashed": "yes"} if fill == looks.ALONE else {})
    for fact in marks.facts:
        yield {"fill": "", "text": fact}


def _reasons(comparison: ComparisonData) -> Iterator[dict[str, str]]:
    """Yield a line for each of the first findings: where, and why."""
    for row in comparison.findings[:_MOST_REASONS]:
        place = comparison.b.model if row.b is None else row.b.call.path or comparison.b.model
        text = printable(f"{place}{f', {row.op}' if row.op else ''}: {row.because}")
        yield {"fill": "", "text": text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"}


def _text(lines: list[str | None]) -> str:
    return "\n".join(printable(part) for line in lines if line for part in line.split("\n"))
