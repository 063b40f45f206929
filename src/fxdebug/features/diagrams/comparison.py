"""The graph of b with the result of a comparison, as DOT and drawn by Graphviz.

The calls around the findings are open, the others closed.
"""

from __future__ import annotations

from pathlib import Path

from fxdebug.comparison.result import ComparisonData
from fxdebug.errors import UsageError
from fxdebug.exports.comparison.marks import MOST, MOST_OPENED, CallKeys, marks_of, with_ancestors
from fxdebug.exports.drawing.drawing import Drawing
from fxdebug.exports.drawing.options import DrawOptions, RankDir
from fxdebug.features.diagrams import dot, render
from fxdebug.features.diagrams.boxes import OpenCalls
from fxdebug.features.diagrams.build_drawing import count_steps, drawing_of
from fxdebug.files.write_file import write_text


def write_dot(comparison: ComparisonData, path: Path, *, fold: bool = True, rankdir: RankDir = "TB") -> Path:
    """Write the DOT text and return the path; ``fold=False`` draws every repeated layer."""
    return write_text(path, source(comparison, fold=fold, rankdir=rankdir))


def write_picture(comparison: ComparisonData, path: Path, options: DrawOptions) -> Path:
    """Draw the picture by Graphviz and return the path."""
    text = source(comparison, fold=options.fold, rankdir=options.rankdir)
    return render.render_dot(text, path, lambda: "write .dot, .csv or .json")


def source(comparison: ComparisonData, *, fold: bool = True, rankdir: RankDir = "TB") -> str:
    """Return the DOT text of the graph of b, marked."""
    drawn = drawn_of(comparison, fold)
    if len(drawn.steps) > render.MOST:
        raise UsageError(
            f"{len(drawn.steps)} nodes are more than dot lays out in a minute ({render.MOST}): "
            "leave repeated layers folded, or write .csv, .json or .txt"
        )
    return dot.dot_text(comparison.b, drawn, DrawOptions(rankdir=rankdir), marks_of(comparison, drawn))


def drawn_of(comparison: ComparisonData, fold: bool) -> Drawing:
    """Return what is drawn of b: the calls around the first findings open, the others closed."""
    alike = CallKeys(comparison)
    options = DrawOptions(fold=fold)
    if not comparison.findings:
        return drawing_of(comparison.b, options)
    opened: set[int] = set()
    places = [row.b.call for row in comparison.findings if row.b is not None]
    everything = opened.union(*map(with_ancestors, places))
    if count_steps(comparison.b, options, OpenCalls(everything, alike.of)) <= MOST:
        return drawing_of(comparison.b, options, OpenCalls(everything, alike.of))
    for call in places[:MOST_OPENED]:
        more = opened | with_ancestors(call)
        if opened and count_steps(comparison.b, options, OpenCalls(more, alike.of)) > MOST:
            continue
        opened = more
    return drawing_of(comparison.b, options, OpenCalls(opened or {0}, alike.of))
