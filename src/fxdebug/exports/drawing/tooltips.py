"""Lines about a box and about a step of a drawing: what a reader sees on pointing at it."""

from __future__ import annotations

from collections.abc import Sequence

from fxdebug.data.graphs import text_of
from fxdebug.data.values import Stats
from fxdebug.exports.columns import number
from fxdebug.exports.drawing.drawing import Box, Step
from fxdebug.exports.text import not_finite

_LONGEST_EXPRESSION = 200  # characters


def about_box(box: Box) -> list[str | None]:
    """Return lines about a box: its call, line and status; some may be empty."""
    call = box.call
    if call is None:
        return [f"{box.row.repeats} times in turn"]
    return [call.id, call.source, _status_and_reason(box.status, call.reason)]


def about_step(step: Step, stats: Stats | None, measures: Sequence[str]) -> list[str | None]:
    """Return lines about an operation or a call: its id, expression, line, status, measures and statistics."""
    node = step.node
    inside = "" if step.kind != "call" or step.status == node.status else f"in it: {step.status}"
    return [
        node.id if step.repeats == 1 else f"{node.id} and {step.repeats - 1} like it",
        _expression(step),
        node.source,
        _status_and_reason(node.status, node.call.reason),
        inside,
        *measures,
        *facts_of(step, stats),
    ]


def _expression(step: Step) -> str:
    """Return the operation with its arguments, one line for each operation that was joined."""
    lines = []
    for node in (step.node, *step.merged):
        if node.step is not None:
            arguments = [text_of(arg) for arg in node.step.args]
            arguments += [f"{name}={text_of(arg)}" for name, arg in node.step.kwargs.items()]
            lines.append(f"{node.step.name} = {node.op}({', '.join(arguments)})")
    cut = _LONGEST_EXPRESSION - 1
    return "\n".join(line if len(line) <= cut else f"{line[:cut]}…" for line in lines)


def facts_of(step: Step, stats: Stats | None) -> list[str | None]:
    """Return lines about the first tensor of a step's result."""
    lines: list[str | None] = [f"{step.values[0].label} on {step.values[0].device}"] if step.values else []
    if stats is not None:
        parts = [f"{name} {number(getattr(stats, name))}" for name in ("mean", "std", "min", "max")]
        lines += [", ".join(parts), f"{stats.zeros} zeros of {stats.count}", not_finite(stats)]
    if len(step.values) > 1:
        lines.append(f"over {len(step.values)} repetitions")
    return lines


def _status_and_reason(status: str | None, reason: str) -> str:
    return f"{status}: {reason}" if status and reason else status or ""
