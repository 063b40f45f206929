"""The text of a drawing in DOT: HTML labels of nodes and boxes, with shapes and statistics, and their tooltips."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fxdebug.data.graphs import refs_in, text_of
from fxdebug.data.values import Stats
from fxdebug.exports.columns import number, shape_range
from fxdebug.exports.drawing.colors import GREY, RED, Colors, is_bad
from fxdebug.exports.drawing.drawing import Arrow, Box, Step
from fxdebug.exports.drawing.marks import Mark, shortened
from fxdebug.exports.drawing.tooltips import about_box, about_step, facts_of
from fxdebug.exports.text import not_finite
from fxdebug.features.diagrams.escaping import html, plain, tooltip
from fxdebug.query.folding import times
from fxdebug.query.network import Node

_LINE_LENGTH = 30  # characters in a line of a joined row of rearranging operations
_LONGEST_INDEX = 24  # characters of x[...] that are shown in a title


# Labels ------------------------------------------------------------------------------------------


def box_label(box: Box, colors: Colors) -> str:
    """Return the label above a box: the name, the class, and its status or exception where that is not as usual.

    Behind it is the colour of the call's own measure, with the number.
    """
    call = box.call
    text = f"<B>{html(shortened(box.row.plain_name) + times(box.row.repeats))}</B>"
    if call is not None and box.row.name != call.type:
        text += f"  {html(shortened(call.type))}"
    if box.status in ("recorded", "opaque"):
        text += f'  <FONT COLOR="#9a6700">{box.status}</FONT>'
    if call is not None and call.error is not None:
        text += f'  <FONT COLOR="{RED}">raised {html(call.error.type)}</FONT>'
    lines = "".join(f'  <FONT POINT-SIZE="8" COLOR="#4a4a52">{html(line)}</FONT>' for line in colors.lines(box))
    header = colors.header(box)
    if header is None:
        return f"<{text}{lines}>"
    return f'<<TABLE BORDER="0" CELLPADDING="2" BGCOLOR="{header}"><TR><TD>{text}{lines}</TD></TR></TABLE>>'


def step_label(step: Step, colors: Colors, mark: Mark | None) -> str:
    """Return the label of a node: its title, and in small letters the lines of its mark, its shape and statistics."""
    title, small = _title(step), "<BR/>".join(_small_lines(step, colors, mark))
    if not small:
        return f"<{title}>"
    return f'<{title}<BR/><FONT POINT-SIZE="3"> </FONT><BR/><FONT POINT-SIZE="8" COLOR="#4a4a52">{small}</FONT>>'


def _title(step: Step) -> str:
    call = step.node.call
    if step.kind == "arranging":
        return f'<FONT COLOR="{GREY}">' + "<BR/>".join(map(html, textwrap.wrap(step.title, _LINE_LENGTH))) + "</FONT>"
    title = f"<B>{html(shortened(step.title))}</B>"
    if step.kind == "call" and step.title != call.type:
        return f"{title}  {html(shortened(call.type))}"
    return title + html(_index(step.node) if step.same_arguments else "")


def _index(node: Node) -> str:
    """Return the index of ``x[...]`` where it is short and not a tensor."""
    if node.op != "getitem" or node.step is None or len(node.step.args) < 2 or refs_in(node.step.args[1]):
        return ""
    text = text_of(node.step.args[1])
    text = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return f" [{text}]" if len(text) <= _LONGEST_INDEX else ""


def _small_lines(step: Step, colors: Colors, mark: Mark | None) -> list[str]:
    stats = colors.stats[step.id]
    lines = []
    if mark is not None:
        lines = [f'<FONT COLOR="{mark.line}"><B>{html(text)}</B></FONT>' for text in mark.text]
    error = step.node.call.error
    if step.failed and error is not None:
        lines.append(f'<FONT COLOR="{RED}">raised {html(error.type)}</FONT>')
    elif step.id in colors.nan_inside:
        lines.append(f'<FONT COLOR="{RED}">NaN inside</FONT>')
    if step.values:
        lines.append(html(f"{step.values[0].dtype} {shape_label([value.shape for value in step.values])}"))
        if step.values[0].sharding is not None and str(step.values[0].sharding):
            lines.append(html(str(step.values[0].sharding)))
    if step.kind != "arranging" or is_bad(stats):
        lines += map(html, _statistics(stats, step.values[0].dtype if step.values else ""))
    written = ("mean ", "std ") if stats is not None else ()  # they stand in the line before
    return lines + [html(line) for line in colors.lines(step) if not line.startswith(written)]


def _statistics(stats: Stats | None, dtype: str) -> list[str]:
    """Return mean and deviation; for integers, whose mean says little, the smallest and the largest."""
    if stats is None or (stats.mean is None and not is_bad(stats)):
        return []
    if is_bad(stats):
        return [not_finite(stats)]
    if dtype == "bool":
        return [f"{stats.count - stats.zeros} of {stats.count} true"]
    if dtype.startswith(("int", "uint")):
        return [number(stats.min) if stats.min == stats.max else f"{number(stats.min)} … {number(stats.max)}"]
    return [f"{number(stats.mean)} ± {number(stats.std)}"]


def shape_label(shapes: Sequence[tuple[int, ...]]) -> str:
    """Return the shape of all repetitions, in brackets where no × shows that it is one."""
    text = shape_range(shapes)
    return text if len(shapes[0]) > 1 else f"[{text}]" if shapes[0] else "scalar"


# Tooltips ----------------------------------------------------------------------------------------


def box_tooltip(box: Box) -> str:
    """Return the tooltip of a box: its call, line and status."""
    return tooltip(about_box(box))


def step_tooltip(step: Step, stats: Stats | None, measures: Sequence[str]) -> str:
    """Return the tooltip of an operation or a call."""
    return tooltip(about_step(step, stats, measures))


def end_tooltip(step: Step, stats: Stats | None) -> str:
    """Return the tooltip of an input or an output of the run."""
    return tooltip([step.title, *facts_of(step, stats)])


def arrow_tooltip(arrow: Arrow, source: Step, target: Step) -> str:
    """Return the tooltip of an arrow: its two ends and its value."""
    ends = [plain(step.title, 60) for step in (source, target)]
    return tooltip([f"{ends[0]} → {ends[1]}", None if arrow.value is None else arrow.value.label])
