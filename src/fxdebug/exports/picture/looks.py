"""Looks of the items of a picture: colours by measure or status, marks of failures, tooltips, the legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fxdebug.data.graphs import Status
from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.colors import BAD_FILL, Colors, boxes_in, is_bad
from fxdebug.exports.drawing.drawing import Box, Drawing, Step
from fxdebug.exports.drawing.meanings import meanings_of
from fxdebug.exports.drawing.options import KIND, NONE, DrawOptions
from fxdebug.exports.drawing.tooltips import about_box, about_step
from fxdebug.printable import printable

INK = "#18202a"  # on the fills, which are light in both themes
RED = {"light": "#c62f3b", "dark": "#ff6b73"}
LINES: dict[str, dict[Status, str]] = {
    "light": {"recorded": "#a86a00", "opaque": "#667383"},
    "dark": {"recorded": "#e2ac4b", "opaque": "#8f9bab"},
}
_MEANINGS: dict[Status, str] = {
    "recorded": "recorded: the operations as they ran",
    "opaque": "opaque: nothing inside can be seen",
}


class Looks:
    """The look of each item and box of one picture, as ``Decoration`` of web/src/picture/svg.ts has it."""

    def __init__(self, trace: TraceData, drawing: Drawing, options: DrawOptions) -> None:
        self._trace, self._drawing, self._options = trace, drawing, options
        self.colors = Colors(trace, drawing, options.color, options.measures)
        self._is_filled = options.color not in (KIND, NONE)
        self._seen: set[Status] = set()

    def of_step(self, step: Step) -> dict[str, Any]:
        """Return the look of a closed item."""
        stats = self.colors.stats[step.id]
        numbers = self.colors.lines(step)
        look: dict[str, Any] = {"title": _text(about_step(step, stats, numbers)), "lines": numbers}
        bad = is_bad(stats)
        if bad or step.failed:
            look |= {"fill": BAD_FILL, "ink": INK, "line": RED[self._options.theme]}
        elif self._is_filled:
            look |= {"fill": self.colors.fill(step), "ink": INK}
        elif self._options.color == NONE:
            look |= {"fill": "none"}
        if step.failed and step.node.call.error is not None:
            look["badge"] = f"raised {printable(step.node.call.error.type)}"
        elif bad and stats is not None:
            look["badge"] = "NaN" if stats.nan else "Inf"
        elif step.id in self.colors.nan_inside:
            look |= {"badge": "NaN inside", "line": RED[self._options.theme]}
        return look | self._status(step.status, "line" in look)

    def of_box(self, box: Box) -> dict[str, Any]:
        """Return the look of an open box."""
        look: dict[str, Any] = {"title": _text(about_box(box))}
        call = box.call
        header = self.colors.header(box)
        numbers = self.colors.lines(box)
        if header is not None and numbers:
            short = numbers[0].partition(" ")[2]
            look["chip"] = {"text": ", ".join(numbers), "short": short, "fill": header, "ink": INK}
        if call is not None and call.error is not None:
            look |= {"badge": f"raised {printable(call.error.type)}", "line": RED[self._options.theme]}
        return look | self._status(box.status, "line" in look)

    def _status(self, status: Status | None, has_line: bool) -> dict[str, Any]:
        """Return the dashed line of what could not be verified."""
        if status not in _MEANINGS or self._options.color != KIND:
            return {}
        self._seen.add(status)
        return {"dashed": True} if has_line else {"dashed": True, "line": LINES[self._options.theme][status]}

    def _facts(self) -> Iterator[str]:
        """Yield how much of the run is drawn."""
        closed = [step for step in self._drawing.steps.values() if step.kind == "call"]
        inside = sum(len(list(step.node.call.walk())) - 1 for step in closed)
        drawn = len(closed) + len(list(boxes_in(self._drawing.root)))
        if inside:
            more = "as many as fit a page: depth= opens more" if self._options.depth is None else "as depth= says"
            yield f"{drawn} calls drawn of {len(self._trace.calls)}, {more}"

    def legend(self) -> list[dict[str, str]]:
        """Return the legend: the colours that occur; those by kind explain themselves."""
        meanings = [(color, text) for color, text in meanings_of(self._drawing, self.colors) if color or text]
        entries = [{"text": text, "fill": color} for color, text in meanings]
        lines = LINES[self._options.theme]
        seen = [status for status in _MEANINGS if status in self._seen]
        entries += [{"text": fact, "fill": ""} for fact in self._facts()]
        return entries + [{"text": _MEANINGS[one], "fill": "none", "line": lines[one], "dashed": "yes"} for one in seen]


def _text(lines: Iterable[str | None]) -> str:
    return "\n".join(printable(part) for line in lines if line for part in line.split("\n"))
