"""What the picture of a run says: titles, numbers and tooltips, as text that DOT and SVG can hold."""

from __future__ import annotations

from html import escape

import graphviz

from fxdebug.data.graphs import refs_in, text_of
from fxdebug.data.values import Stats, shape_text
from fxdebug.exports.graphviz.drawing import Box, Step
from fxdebug.exports.text import not_finite, number, printable
from fxdebug.query.network import Node

RED = "#c62828"
_LONGEST = 48  # letters of a title; names may be of any length


def box_title(box: Box) -> str:
    """Above a box: the name, the class, and what is not as it should be."""
    name, kind = shortened(box.row.name), shortened(box.row.first.type)
    text = f"<B>{html(name)}</B>" + ("" if box.row.name == box.row.first.type else f"  {html(kind)}")
    if box.status in ("recorded", "opaque"):
        text += f'  <FONT COLOR="#9a6700">{box.status}</FONT>'
    if box.row.first.error is not None:
        text += f'  <FONT COLOR="{RED}">raised {html(box.row.first.error.type)}</FONT>'
    return f"<{text}>"


def index(node: Node) -> str:
    """What ``x[...]`` takes, where that is short and not a tensor."""
    if node.op != "getitem" or node.step is None or len(node.step.args) < 2 or refs_in(node.step.args[1]):
        return ""
    text = text_of(node.step.args[1])
    text = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return f" [{text}]" if len(text) <= 24 else ""


def step_tip(step: Step, stats: Stats | None) -> str:
    """The tooltip of an operation or a call: its id, expression, line, trust and numbers."""
    node = step.node
    inside = "" if step.kind != "call" or step.status == node.status else f"in it: {step.status}"
    lines: list[str | None] = [
        node.id if step.repeats == 1 else f"{node.id} and {step.repeats - 1} like it",
        _expression(step),
    ]
    lines += [node.source, trust(node.status, node.call.reason), inside]
    return tip([*lines, *facts(step, stats)])


def _expression(step: Step) -> str:
    """The operation with its arguments."""
    lines = []
    for node in (step.node, *step.merged):
        if node.step is not None:
            arguments = [text_of(arg) for arg in node.step.args]
            arguments += [f"{name}={text_of(arg)}" for name, arg in node.step.kwargs.items()]
            lines.append(f"{node.step.name} = {node.op}({', '.join(arguments)})")
    return "\n".join(line if len(line) < 200 else f"{line[:199]}…" for line in lines)


def facts(step: Step, stats: Stats | None) -> list[str | None]:
    """Lines about the first tensor of a step's result."""
    lines: list[str | None] = [f"{step.values[0].label} on {step.values[0].device}"] if step.values else []
    if stats is not None:
        parts = [f"{name} {number(getattr(stats, name))}" for name in ("mean", "std", "min", "max")]
        lines += [", ".join(parts), f"{stats.zeros} zeros of {stats.count}", not_finite(stats)]
    if len(step.values) > 1:
        lines.append(f"over {len(step.values)} repetitions")
    return lines


def trust(status: str | None, reason: str) -> str:
    """A status with its reason."""
    return f"{status}: {reason}" if status and reason else status or ""


def shape_of(shape: tuple[int, ...]) -> str:
    """Brackets where there is no × to show that it is a shape."""
    return shape_text(shape) if len(shape) > 1 else f"[{shape_text(shape)}]" if shape else "scalar"


def numbers(stats: Stats | None, dtype: str) -> list[str]:
    """Mean and deviation; of integers, whose mean says little, the smallest and the largest."""
    if stats is None or (stats.mean is None and not is_bad(stats)):
        return []
    if is_bad(stats):
        return [not_finite(stats)]
    if dtype == "bool":
        return [f"{stats.count - stats.zeros} of {stats.count} true"]
    if dtype.startswith(("int", "uint")):
        return [number(stats.min) if stats.min == stats.max else f"{number(stats.min)} … {number(stats.max)}"]
    return [f"{number(stats.mean)} ± {number(stats.std)}"]


def is_bad(stats: Stats | None) -> bool:
    """Is there a NaN or an infinity?"""
    return stats is not None and stats.finite < stats.count


# Text that DOT and SVG can hold ------------------------------------------------------------------


def shortened(text: str) -> str:
    """A title with its middle left out where it is long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


def html(text: str) -> str:
    """Text inside HTML-like labels."""
    return escape(printable(text)).replace("\\", "&#92;")


def plain(text: str, longest: int = 1000) -> str:
    """Text outside HTML labels: backslashes and ampersands would be read as escapes."""
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return str(graphviz.nohtml(printable(text).replace("&", "&amp;").replace("\\", "\\\\")))


def tip(lines: list[str | None]) -> str:
    """A tooltip of several lines."""
    shown = [plain(part) for line in lines if line for part in line.split("\n")]
    return graphviz.nohtml("\\n".join(shown) or " ")  # type: ignore[no-any-return]
