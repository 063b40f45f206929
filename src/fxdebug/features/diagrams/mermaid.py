"""A run as a Mermaid flowchart: folded as a picture is, and closed further until every renderer takes it.

Mermaid draws at most 50,000 letters and 500 arrows unless its page is configured otherwise; forges leave that as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.exports.drawing.drawing import NEXT_TURN, Box, Drawing, Step
from fxdebug.exports.drawing.options import DEFAULTS, DrawOptions
from fxdebug.features.diagrams.build_drawing import drawing_of
from fxdebug.features.shared.programs.facts import shortened
from fxdebug.files.write_file import write_text
from fxdebug.query.folding import times

MOST_LETTERS = 50_000  # maxTextSize
MOST_ARROWS = 500  # maxEdges
_LABEL = 60
_SHAPES = {
    "call": ("[[", "]]"),
    "input": ("([", "])"),
    "output": ("([", "])"),
    "op": ("(", ")"),
    "arranging": ("(", ")"),
}


def write_mermaid(
    trace: TraceData, path: Path, *, depth: int | None = None, fold: bool = True, leaves: bool = False
) -> Path:
    """Write a flowchart; calls are closed from the innermost on until it is within Mermaid's limits, and it says so."""
    return write_text(path, mermaid(trace, DrawOptions(depth=depth, fold=fold, leaves=leaves)))


def mermaid(trace: TraceData, options: DrawOptions = DEFAULTS) -> str:
    """Return the flowchart. Raises ``UsageError`` where even the outermost calls are too many for Mermaid."""
    drawing = drawing_of(trace, options)
    asked = drawing.depth
    text = _text(drawing, "")
    while not _fits(drawing, text):
        deepest = drawing.depth if drawing.depth is not None else max(call.depth for call in trace.calls)
        if deepest <= 0:
            raise UsageError(
                f"{len(drawing.arrows)} arrows and {len(text)} letters are more than Mermaid draws ({MOST_ARROWS} and "
                f"{MOST_LETTERS}): export .dot or .svg"
            )
        drawing = drawing_of(trace, replace(options, depth=deepest - 1, everything=False, leaves=False))
        was = "all levels" if asked is None else f"depth {asked}"
        text = _text(drawing, f"closed below depth {deepest - 1}: {was} would be more than Mermaid draws")
    return text


def _fits(drawing: Drawing, text: str) -> bool:
    return len(drawing.arrows) <= MOST_ARROWS and len(text) <= MOST_LETTERS


def _text(drawing: Drawing, remark: str) -> str:
    ids = {id: f"n{number}" for number, id in enumerate(drawing.steps)}
    lines = ["flowchart TB", *([f"  %% {remark}"] if remark else [])]
    lines += _contents(drawing, ids)
    for arrow in drawing.arrows:
        shape = "" if arrow.value is None else "×".join(map(str, arrow.value.shape))
        text = f"{shape} {NEXT_TURN}".lstrip() if arrow.kind == "carried" else shape
        label = f"|{_quoted(text)}|" if text else ""
        line = {"data": "-->", "memory": "-.->", "order": "-.-", "carried": "==>"}[arrow.kind]
        lines.append(f"  {ids[arrow.source]} {line}{label} {ids[arrow.target]}")
    if remark:
        lines.append(f"  remark>{_quoted(remark)}]")
    raised = [ids[id] for id, step in drawing.steps.items() if step.failed]
    if raised:
        lines += ["  classDef raised fill:#f7c6c5,stroke:#b0413e", f"  class {','.join(raised)} raised"]
    return "\n".join(lines) + "\n"


def _contents(drawing: Drawing, ids: dict[str, str]) -> Iterator[str]:
    """Yield the steps, those in an open call between the lines of its box."""
    boxed: set[str] = set()
    pending: list[Box | str] = [] if drawing.root is None else [drawing.root]
    count = 0
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
            continue
        count += 1
        name = shortened(item.row.plain_name, _LABEL) + times(item.row.repeats)
        kind = (
            ""
            if item.call is None or item.call.type == item.row.plain_name
            else f" {shortened(item.call.type, _LABEL)}"
        )
        yield f"  subgraph b{count} [{_quoted(name + kind)}]"
        for step in item.steps:
            boxed.add(step.id)
            yield _step(ids[step.id], step)
        pending.append("  end")
        pending.extend(reversed(item.boxes))
    for id, step in drawing.steps.items():
        if id not in boxed:
            yield _step(ids[id], step)


def _step(id: str, step: Step) -> str:
    left, right = _SHAPES[step.kind]
    title = shortened(step.title, _LABEL)
    if step.kind == "call" and step.node.call.type != step.title:
        title += f" {shortened(step.node.call.type, _LABEL)}"
    return f"    {id}{left}{_quoted(title or step.kind)}{right}"


def _quoted(text: str) -> str:
    """Return a label as Mermaid reads it: letters that mean something to it by their numbers."""
    return '"' + "".join([c if c.isalnum() or c in " .,×…_-/=+:()·→" else f"#{ord(c)};" for c in text]) + '"'
