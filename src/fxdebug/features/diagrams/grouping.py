"""Grouping in a drawing: repeated layers with equal graphs are drawn once, rearranging operations as one step."""

from __future__ import annotations

from fxdebug.data.calls import Call
from fxdebug.exports.drawing.drawing import Arrow, Box, Step
from fxdebug.query.network import Network


class GraphSignatures:
    """A number for the graph of each call, equal where the same operations follow one another."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._graphs: dict[int, int] = {}
        self._numbers: dict[tuple[str, ...], int] = {}

    def of(self, call: Call) -> int:
        """Return the number of a call's graph; -1 if it has none."""
        body = self._net.bodies[call.index]
        if body is None or body.graph is None:
            return -1
        if body.graph not in self._graphs:
            names = tuple([f"{step.kind} {step.name}" for step in self._net.steps(call)])
            self._graphs[body.graph] = self._numbers.setdefault(names, len(self._numbers))
        return self._graphs[body.graph]


def join_rearranging(root: Box, steps: dict[str, Step], arrows: list[Arrow]) -> list[Arrow]:
    """Join each row of rearranging steps in one box into one step; return the arrows that are left."""
    into: dict[str, list[Arrow]] = {}
    out_of: dict[str, list[Arrow]] = {}
    for arrow in arrows:
        into.setdefault(arrow.target, []).append(arrow)
        out_of.setdefault(arrow.source, []).append(arrow)
    joined_to: dict[str, str] = {}  # step → the step that it was joined to
    pending = [root]
    while pending:
        box = pending.pop()
        pending.extend(box.boxes)
        here = {step.id for step in box.steps}
        for step in box.steps:
            before = into.get(step.id, [])
            if step.kind != "arranging" or len(before) != 1 or before[0].kind != "data":
                continue
            first = joined_to.get(before[0].source, before[0].source)
            if first not in here or steps[first].kind != "arranging" or len(out_of[before[0].source]) != 1:
                continue
            steps[first].merged.append(step.node)
            steps[first].title += f" · {step.title}"
            steps[first].values = step.values
            joined_to[step.id] = first
            del steps[step.id]
        box.steps = [step for step in box.steps if step.id not in joined_to]
    left = [arrow for arrow in arrows if arrow.target not in joined_to]
    for arrow in left:
        arrow.source = joined_to.get(arrow.source, arrow.source)
    return left
