"""The boxes and steps of a drawing: open calls become boxes, closed calls and operations become steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op, Status, refs_in, text_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group
from fxdebug.exports.drawing.drawing import REARRANGING, Box, Step, StepKind, worst_status
from fxdebug.exports.drawing.options import DrawOptions
from fxdebug.features.diagrams.grouping import GraphSignatures
from fxdebug.features.diagrams.loops import Turns, operations_of_loop
from fxdebug.query.folding import FoldedCalls, RepeatedGroup, Row, fold_repeated, times
from fxdebug.query.network import Network, Node


@dataclass(frozen=True)
class OpenCalls:
    """The calls to draw open, by index, and a function for the key that repetitions must share to be drawn as one."""

    opened: Collection[int]
    fold_key: Callable[[Call], object]


class BoxBuilder:
    """Build the boxes and steps of one drawing; ``steps`` and ``stands_for`` are those of the :class:`Drawing`."""

    def __init__(
        self, trace: TraceData, net: Network, options: DrawOptions, open_calls: OpenCalls | None = None
    ) -> None:
        self._net = net
        self._options = options
        self._open_calls = open_calls
        signatures = GraphSignatures(net)

        def alike(call: Call) -> object:
            return signatures.of(call), None if open_calls is None else open_calls.fold_key(call)

        self._rows = fold_repeated(trace, fold=options.fold, depth=options.depth, alike=alike)
        self.steps: dict[str, Step] = {}
        self.stands_for: dict[str, str] = {}  # id of a node → id of the drawn node that stands for it
        self.turns = Turns(net, self._rows)
        self._in_loops: dict[int, list[tuple[FoldedCalls, list[Node]]]] = {}  # by the id of a group that waits
        self._by_call: dict[int, list[Node]] = {}
        for node in net.nodes.values():
            if node.kind != "call_module":
                self._by_call.setdefault(node.call.index, []).append(node)

    def build(self) -> Box | None:
        """Build all boxes with their steps; return the root's box, or ``None`` where the root is closed."""
        if self._options.depth == 0:
            self._closed_call(self._rows)
            return None
        root = Box(self._rows, _status(self._rows.calls))
        pending = [root]
        while pending:  # without recursion: models may be nested deeper than Python can recurse
            box = pending.pop()
            rows = box.row.children
            if isinstance(box.row, FoldedCalls):
                rows = self._add_operations(box, box.row)
            for child in rows:
                if isinstance(child, RepeatedGroup):
                    box.boxes.append(self._group_box(child))
                elif self._is_open(child):
                    box.boxes.append(Box(child, _status(child.calls)))
                else:
                    box.steps.append(self._closed_call(child))
            pending.extend(box.boxes)
        return root

    def add_inputs(self) -> None:
        """Add a step for every input of the run."""
        for node in self._by_call.get(0, ()):
            if node.kind == "placeholder" and (node.values or self._options.everything):
                self._add(Step(node.id, "input", node, node.target, node.values[:1]), (node.id,))

    def _is_open(self, row: FoldedCalls) -> bool:
        if self._open_calls is not None:
            return row.first.index in self._open_calls.opened and bool(row.children or self._net.steps(row.first))
        if self._options.depth is not None and row.first.depth >= self._options.depth:
            return False
        leaves = self._options.leaves or self._options.everything
        return bool(row.children) or (leaves and len(self._net.steps(row.first)) > 2)

    def _add_operations(self, box: Box, row: FoldedCalls) -> list[Row]:
        """Add a step for each operation of an open call; return the rows below it.

        A step stands for the same operation of the call's repetitions. Operations between repeated calls are left to
        the box of these: they are drawn once.
        """
        nodes = [node for node in self._by_call.get(row.first.index, ()) if self._is_drawn(node)]
        rows, in_loops = list(row.children), set[str]()
        for position, child in enumerate(rows):
            if child.repeats == 1 or self._open_calls is not None:
                continue
            loop = operations_of_loop(self._net, child, row.first, nodes)
            if loop:
                for turns in loop:
                    self._note_turns(child, row, turns)
                if isinstance(child, FoldedCalls):
                    child = RepeatedGroup(child.plain_name, child.repeats, [replace(child, repeats=1)])
                rows[position] = child
                self._in_loops[id(child)] = [(row, turns) for turns in loop]
                in_loops.update(node.id for turns in loop for node in turns)
        box.steps += [self._operation(row, [node]) for node in nodes if node.id not in in_loops]
        return rows

    def _note_turns(self, repeated: Row, around: FoldedCalls, turns: Sequence[Node]) -> None:
        for call in around.calls:
            for number, node in enumerate(turns):
                twin = self._twin(call, node)
                if twin is not None:
                    self.turns.add_operation(repeated, twin, call, number)

    def _group_box(self, group: RepeatedGroup) -> Box:
        """Return the box of calls that repeat in turn, with the operations between them."""
        box = Box(group)
        for row, turns in self._in_loops.pop(id(group), ()):
            step = self._operation(row, turns)
            step.title += times(len(turns)) if len(turns) != group.repeats else ""
            box.steps.append(step)
        return box

    def _operation(self, row: FoldedCalls, turns: Sequence[Node]) -> Step:
        """Add one step for an operation in all turns of its loop and in all calls of a row."""
        node = turns[0]
        twins = [twin for turn in turns for call in row.calls if (twin := self._twin(call, turn)) is not None]
        kind: StepKind = "arranging" if node.op in REARRANGING and not self._options.everything else "op"
        values = tuple([twin.values[0] for twin in twins if twin.values])
        status = worst_status(twin.status for twin in twins)
        ids = tuple([twin.id for twin in twins])
        same = node.step is None or all(
            twin.step is not None and (twin.step is node.step or _constants(twin.step) == _constants(node.step))
            for twin in twins
        )
        step = Step(node.id, kind, node, node.op, values, status, twins=ids, same_arguments=same)
        return self._add(step, ids)

    def _twin(self, call: Call, node: Node) -> Node | None:
        """Return the same node of another repetition: their graphs are alike, so it has the same name."""
        return self._net.nodes.get(f"{self._net.call_id(call)}/{node.id.rpartition('/')[2]}")

    def _closed_call(self, row: FoldedCalls) -> Step:
        """Add a call as one step that stands for everything inside it."""
        node = self._net.nodes[self._net.call_id(row.first)]
        values = tuple([v for call in row.calls if (v := next(iter(call.outputs or ()), None)) is not None])
        inner = [call for repeated in row.calls for call in repeated.walk()]
        ids = [self._net.call_id(call) for call in inner]
        ids += [n.id for call in inner for n in self._by_call.get(call.index, ())]
        twins = tuple([self._net.call_id(call) for call in row.calls])
        return self._add(Step(node.id, "call", node, row.name, values, _status(inner), row.repeats, twins), ids)

    def _add(self, step: Step, ids: Sequence[str]) -> Step:
        self.steps[step.id] = step
        self.stands_for.update(dict.fromkeys(ids, step.id))
        return step

    def _is_drawn(self, node: Node) -> bool:
        if node.kind in ("placeholder", "output"):
            return False
        if self._options.everything or node.id in self._net.writers:
            return True
        if node.kind == "get_attr" or node.value is None or ".make_" in node.target:
            return False
        return not self._takes_a_part(node)

    def _takes_a_part(self, node: Node) -> bool:
        """Does the node only take an item out of a tuple, list or dict that another node returned?"""
        if node.target.rpartition(".")[2] not in ("getitem", "getattr") or node.kind != "call_function":
            return False
        whole = next((self._net.nodes[edge.source] for edge in self._net.into.get(node.id, ())), None)
        return whole is not None and isinstance(whole.item, Group)


def _constants(step: Op) -> list[str]:
    """Return the arguments of an operation that are neither nodes nor hold any."""
    return [text_of(arg) for arg in step.args if not refs_in(arg)]


def _status(calls: Iterable[Call]) -> Status | None:
    return worst_status(call.status for call in calls)
