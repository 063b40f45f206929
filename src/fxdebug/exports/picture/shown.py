"""The boxes and items of a picture, with the calls and operations behind each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fxdebug.data.calls import Call
from fxdebug.data.graphs import Status
from fxdebug.data.trace import TraceData
from fxdebug.exports.drawing.drawing import Box, Drawing, Step, StepKind, worst_status
from fxdebug.exports.page.bodies import CALL, VIEWS, Bodies
from fxdebug.query.folding import FoldedCalls, RepeatedGroup
from fxdebug.query.network import Node, network_of


def shown(trace: TraceData, bodies: Bodies, root: dict[str, Any]) -> Drawing:
    """Return the drawing that the engine's boxes are: steps by their paths (``0.3.1``), boxes by theirs.

    ``root`` is what the engine drew: ``members`` has for each drawn item, and each of its repetitions, the items of
    the body that it stands for; ``inside`` what is open; ``kind`` is ``group`` for items that repeat in turn.
    """
    return _Reader(trace, bodies).drawing(root)


class _Reader:
    def __init__(self, trace: TraceData, bodies: Bodies) -> None:
        self._trace, self._bodies = trace, bodies
        self._net = network_of(trace)
        self._child = {
            (call.parent_index, item): call.index for call, item in zip(trace.calls, bodies.item_of_call) if item >= 0
        }
        self.steps: dict[str, Step] = {}

    def drawing(self, root: dict[str, Any]) -> Drawing:
        if root["kind"] == "closed":  # the run as one box
            self._closed("0", [0], 1, self._trace.model)
            return Drawing(None, self.steps, [], 0)
        box = self._call_box([0], self._trace.model, 1)
        self._fill(box, "", root, [0])
        return Drawing(box, self.steps, [], None)

    def _fill(self, box: Box, key: str, frame: dict[str, Any], calls: Sequence[int]) -> None:
        for slot, members in enumerate(frame["members"]):
            own = f"{key}.{slot}" if key else str(slot)
            inside = frame["inside"].get(str(slot))
            if inside is not None and inside["kind"] == "group":
                group = Box(RepeatedGroup("", frame["times"][slot], []))
                self._fill(group, own, inside, calls)
                box.boxes.append(group)
                continue
            children = [self._child.get((call, turn[0]), -1) for call in calls for turn in members]
            if all(child >= 0 for child in children):
                name = self._trace.calls[children[0]].path.rpartition(".")[2]
                if inside is None:
                    box.steps.append(self._closed(own, children, frame["times"][slot], name))
                else:
                    opened = self._call_box(children, name, frame["times"][slot])
                    self._fill(opened, own, inside, children)
                    box.boxes.append(opened)
            elif (step := self._operation(own, calls, members)) is not None:
                box.steps.append(step)

    def _call_box(self, indices: Sequence[int], name: str, repeats: int) -> Box:
        calls = tuple([self._trace.calls[index] for index in indices])
        return Box(FoldedCalls(calls, name, repeats), worst_status(call.status for call in calls))

    def _closed(self, key: str, indices: Sequence[int], repeats: int, name: str) -> Step:
        calls = [self._trace.calls[index] for index in indices]
        node = self._net.nodes[self._net.call_id(calls[0])]
        values = tuple([value for call in calls if (value := next(iter(call.outputs or ()), None)) is not None])
        ids = tuple([self._net.call_id(call) for call in calls])
        step = Step(key, "call", node, name, values, _status(calls), repeats, ids)
        return self.steps.setdefault(key, step)

    def _operation(self, key: str, calls: Sequence[int], members: Sequence[Sequence[int]]) -> Step | None:
        """Return the step of an operation, or of rearranging ones in a row; ``None`` without a node in a graph."""
        turns = [[self._node(call, item) for item in turn] for call in calls for turn in members]
        rows = [[node for node in turn if node is not None] for turn in turns]
        rows = [row for row in rows if row]
        if not rows:
            return None
        first = rows[0]
        values = tuple([row[-1].values[0] for row in rows if row[-1].values])
        item = self._bodies.distinct[self._bodies.of_call[calls[0]]].items[members[0][0]]
        kind: StepKind = "arranging" if item.kind == VIEWS else "op"
        ids = tuple([row[0].id for row in rows])
        status = worst_status(row[0].status for row in rows)
        title = " · ".join(node.op for node in first)
        step = Step(key, kind, first[0], title, values, status, len(members), ids, merged=first[1:])
        return self.steps.setdefault(key, step)

    def _node(self, call: int, item: int) -> Node | None:
        body = self._bodies.distinct[self._bodies.of_call[call]]
        position = body.items[item].step
        if position < 0 or body.items[item].kind == CALL:
            return None
        of = self._trace.calls[call]
        return self._net.nodes.get(f"{self._net.call_id(of)}/{self._net.steps(of)[position].name}")


def keyed_boxes(drawing: Drawing, root: dict[str, Any]) -> Iterator[tuple[str, Box]]:
    """Yield every open box with its path, the root with an empty one."""
    if drawing.root is None:
        return
    pending = [("", drawing.root, root)]
    while pending:
        key, box, frame = pending.pop()
        yield key, box
        slots = sorted(frame["inside"], key=int)
        pending.extend(
            (f"{key}.{slot}" if key else slot, inner, frame["inside"][slot]) for slot, inner in zip(slots, box.boxes)
        )


def _status(calls: Sequence[Call]) -> Status | None:
    return worst_status(inner.status for call in calls for inner in call.walk())
