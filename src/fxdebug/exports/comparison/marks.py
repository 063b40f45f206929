"""Looks of what is drawn of b in a comparison: nodes that add error in red, those that inherit it shaded.

Repeated layers with equal findings and verdicts are drawn once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from fxdebug.comparison.result import ComparisonData, Row, Side
from fxdebug.data.calls import Call
from fxdebug.exports.comparison.finding import error_of
from fxdebug.exports.drawing.colors import RED
from fxdebug.exports.drawing.drawing import Box, Drawing, Step
from fxdebug.exports.drawing.marks import Mark, Marks, shortened

MOST = 80  # nodes up to which calls with further findings are opened, too
MOST_OPENED = 12  # findings whose calls are opened as long as there is room

FINDING, _EQUAL, ALONE = "#f7c6c5", "#e8f1e8", "#ececf0"
_SHADES = ("#fff3dc", "#ffe4b5", "#ffd28a", "#ffbf66")  # an inherited error of up to 0.001, 0.01, 0.1 and more
_DARK = "#8a5a00"


def with_ancestors(call: Call) -> set[int]:
    """Return the indices of a call and of all that it is in."""
    return {each.index for each in call.with_ancestors()}


class CallKeys:
    """Keys that calls of one run must share to be drawn as one: the findings in their bodies, and their verdicts."""

    def __init__(self, comparison: ComparisonData, run: Literal["a", "b"] = "b") -> None:
        self._findings: dict[int, list[tuple[str | None, str | None]]] = {}
        self._verdicts: dict[int, str] = {}
        for row in comparison.findings:
            side: Side | None = getattr(row, run)
            if side is not None:
                self._findings.setdefault(side.call.index, []).append((row.kind, row.op))
        for row in comparison.rows:
            side = getattr(row, run)
            if row.op is None and row.kind is None and side is not None:
                shown = row.verdict if row.verdict in ("inherited", "adds", f"only_{run}") else "equal"
                self._verdicts[side.call.index] = shown

    def of(self, call: Call) -> object:
        """Return the key of one call."""
        return tuple(self._findings.get(call.index, ())), self._verdicts.get(call.index)


# Marks ---------------------------------------------------------------------------------------------


def marks_of(comparison: ComparisonData, drawn: Drawing) -> Marks:
    """Return the look of all that adds error, inherits it, is equal, or has no counterpart."""
    rows: dict[str, Row] = {}
    for row in comparison.rows:
        if row.b is not None and row.b.node is not None and row.kind is None:
            rows[row.b.node] = row
    merged = {node.id: step.id for step in drawn.steps.values() for node in step.merged}
    findings: dict[str, list[Row]] = {}
    boxes: dict[int, Mark] = {}
    opened = _open_calls(drawn)
    for finding in comparison.findings:
        if finding.b is None:
            continue
        id = drawn.stands_for.get(finding.b.node or "", "")
        place = merged.get(id, id)
        if place in drawn.steps:
            findings.setdefault(place, []).append(finding)
        for index in with_ancestors(finding.b.call):
            if index in opened:
                boxes[index] = Mark("", RED, "1.2")
    nodes = {}
    for step in drawn.steps.values():
        mark = _finding_mark(findings[step.id]) if step.id in findings else _other_mark(step, rows)
        if mark is not None:
            nodes[step.id] = mark
    facts = [f"{len(comparison.findings)} finding{'s' * (len(comparison.findings) != 1)} against a"]
    if comparison.only_a:
        facts.append(f"{len(comparison.only_a)} calls only in a")
    return Marks(nodes, boxes, list(_legend(nodes.values())), facts)


def _open_calls(drawn: Drawing) -> set[int]:
    """Return the indices of the first calls of the open boxes."""
    indices: set[int] = set()
    pending: list[Box] = [] if drawn.root is None else [drawn.root]
    while pending:
        box = pending.pop()
        if box.call is not None:
            indices.add(box.call.index)
        pending.extend(box.boxes)
    return indices


def _finding_mark(findings: list[Row]) -> Mark:
    first = findings[0]
    lines = [f"{first.kind}, error {error_of(first)}" if first.error < math.inf else str(first.kind)]
    lines.append(shortened(first.because))
    if len(findings) > 1:
        lines.append(f"and {len(findings) - 1} more finding{'s' * (len(findings) > 2)}")
    return Mark(FINDING, RED, "2.4", text=tuple(lines))


def _other_mark(step: Step, rows: dict[str, Row]) -> Mark | None:
    """Return the mark of a node without a finding; none for the inputs and outputs of the run."""
    if step.kind not in ("op", "arranging", "call"):
        return None
    known = [rows[id] for id in step.twins if id in rows]
    measured = [row for row in known if row.measured]
    wrong = [row for row in measured if row.verdict in ("inherited", "adds")]
    if wrong:
        worst = max(wrong, key=lambda row: row.error)
        return Mark(_shade(worst.error), _DARK, "0.8", text=(_error_label(worst),))
    if measured:
        return Mark(_EQUAL)
    return None if step.kind == "arranging" or any(row.a for row in known) else Mark(ALONE, dashed=True)


def _error_label(row: Row) -> str:
    word = error_of(row)
    return word if word.startswith("other") else f"error {word}"


def _shade(error: float) -> str:
    return _SHADES[sum(error > limit for limit in (1e-3, 1e-2, 1e-1))]


def _legend(marks: Iterable[Mark]) -> Iterable[tuple[str, str]]:
    fills = {mark.fill for mark in marks}
    if FINDING in fills:
        yield FINDING, "adds error"
    if fills & set(_SHADES):
        shades = [(shade, "") for shade in _SHADES]
        yield from [*shades[:-1], (_SHADES[-1], "inherits it: up to 0.001, 0.01, 0.1, more")]
    if _EQUAL in fills:
        yield _EQUAL, "equal"
    if ALONE in fills:
        yield ALONE, "dashed: no counterpart in a"
