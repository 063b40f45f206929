"""What of a run is drawn: calls as boxes in boxes, the operations between them, repeated layers once.

A :class:`Drawing` is decided here, in terms of the trace; ``dot`` only writes it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fxdebug.graph import Network, Node
from fxdebug.prune import Row, folded
from fxdebug.query import network
from fxdebug.trace import Call, Trace
from fxdebug.values import Group, Stats, Value, pooled

READABLE = 70  # boxes that a person takes in at a glance


@dataclass
class Box:
    """A call that is drawn open: a cluster with boxes and steps in it."""

    row: Row
    boxes: list[Box] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass
class Step:
    """One drawn node: an operation, or a call that stays closed; for repeated layers it stands for all."""

    node: Node
    repeats: int
    values: tuple[Value, ...]

    @property
    def stats(self) -> Stats | None:
        """The statistics of its first result, pooled over the repetitions."""
        known = [value.stats for value in self.values if value.stats is not None]
        return pooled(known) if known else None


@dataclass
class Arrow:
    """Data that flows between two drawn nodes."""

    source: str
    target: str
    value: Value | None
    memory: bool = False


@dataclass
class Drawing:
    """Boxes, steps and arrows, by the ids of the nodes that are drawn."""

    root: Box
    steps: dict[str, Step]
    arrows: list[Arrow]
    inputs: list[Step]
    result: Node
    hidden: int = 0  # steps that were left out: sizes, reads of parameters, what is inside closed calls


def drawing(trace: Trace, *, depth: int | None = None, fold: bool = True, everything: bool = False) -> Drawing:
    """Decide what is drawn.

    ``depth``: calls deeper than this stay closed; ``None`` opens as many levels as stay readable. Calls
    without calls in them stay closed too (a Linear is one box), and steps that give no tensor (sizes) or
    only read one are left out, unless ``everything``.
    """
    net = network(trace)
    if depth is None and not everything:
        depth = _readable_depth(trace, net, fold)
    return _Draughtsman(trace, net, depth, fold, everything).drawing()


def count(trace: Trace, depth: int | None, fold: bool, everything: bool) -> int:
    """How many nodes a drawing would have."""
    return len(_Draughtsman(trace, network(trace), depth, fold, everything).drawing().steps)


def _readable_depth(trace: Trace, net: Network, fold: bool) -> int:
    deepest = max(call.depth for call in trace.calls)
    best = 1
    for depth in range(1, min(deepest, 12) + 1):
        if len(_Draughtsman(trace, net, depth, fold, False).drawing().steps) > READABLE:
            break
        best = depth
    return best


def _takes_a_part(net: Network, node: Node) -> bool:
    """Does the node only take an item out of a tuple, list or dict that another one returned?"""
    if node.op not in ("getitem", "getattr") or node.kind != "call_function":
        return False
    whole = next((net.nodes[edge.source] for edge in net.into.get(node.id, ())), None)
    return whole is not None and isinstance(whole.item, Group)


class _Draughtsman:
    def __init__(self, trace: Trace, net: Network, depth: int | None, fold: bool, everything: bool) -> None:
        self._trace = trace
        self._net = net
        self._depth = depth
        self._everything = everything
        self._rows = folded(trace, fold=fold, depth=depth)
        self._steps: dict[str, Step] = {}
        self._stands_for: dict[str, str] = {}  # every node's id → the drawn node that stands for it
        self._turn: dict[str, int] = {}  # node's id → which repetition it belongs to
        self._by_call: dict[int, list[Node]] = {}
        for node in net.nodes.values():
            if node.kind != "call_module":
                self._by_call.setdefault(node.call.index, []).append(node)

    def drawing(self) -> Drawing:
        """Boxes first, then the arrows between what is drawn."""
        root = self._box(self._rows)
        inputs = [self._steps[id] for id in self._inputs()]
        arrows, hidden = self._arrows()
        result = self._net.nodes[self._net.call_id(self._trace.root)]
        return Drawing(root, self._steps, arrows, inputs, result, hidden)

    def _inputs(self) -> Iterator[str]:
        for node in self._by_call.get(0, ()):
            if node.kind == "placeholder":
                self._steps[node.id] = Step(node, 1, node.values[:1])
                self._stands_for[node.id] = node.id
                yield node.id

    def _box(self, row: Row) -> Box:
        box = Box(row)
        stack = [box]
        while stack:  # models may be nested deeper than Python may call
            current = stack.pop()
            self._open(current)
            for child in current.row.children:
                if self._is_open(child):
                    current.boxes.append(Box(child))
                else:
                    current.steps.append(self._closed(child))
            stack.extend(current.boxes)
        return box

    def _is_open(self, row: Row) -> bool:
        if self._depth is not None and row.first.depth >= self._depth:
            return False
        return bool(row.children) or (self._everything and self._by_call.get(row.first.index) is not None)

    def _open(self, box: Box) -> None:
        """Draw a call's own operations; those of its repetitions are stood for by the first one's."""
        first = box.row.first
        for node in self._by_call.get(first.index, ()):
            if self._is_drawn(node):
                alike = [self._same_step(call, node) for call in box.row.calls]
                values = tuple(twin.values[0] for twin in alike if twin is not None and twin.values)
                step = self._steps[node.id] = Step(node, len(box.row.calls), values)
                box.steps.append(step)
        for turn, call in enumerate(box.row.calls):
            for node in self._by_call.get(call.index, ()):
                twin = self._same_step(first, node)
                if twin is not None and twin.id in self._steps:
                    self._stands_for[node.id] = twin.id
                    self._turn[node.id] = turn

    def _same_step(self, call: Call, node: Node) -> Node | None:
        return self._net.nodes.get(f"{self._net.call_id(call)}/{node.id.rpartition('/')[2]}")

    def _closed(self, row: Row) -> Step:
        """A call as one node, with everything inside it going into it."""
        node = self._net.nodes[self._net.call_id(row.first)]
        values = tuple(v for call in row.calls if (v := next(iter(call.outputs or ()), None)) is not None)
        step = self._steps[node.id] = Step(node, len(row.calls), values)
        for turn, call in enumerate(row.calls):
            for inner in call.walk():
                for id in (self._net.call_id(inner), *(n.id for n in self._by_call.get(inner.index, ()))):
                    self._stands_for[id] = node.id
                    self._turn[id] = turn
        return step

    def _is_drawn(self, node: Node) -> bool:
        if node.kind in ("placeholder", "output"):
            return False
        if self._everything:
            return True
        if node.kind == "get_attr" or node.value is None or ".make_" in node.target:
            return False
        return not _takes_a_part(self._net, node)

    def _arrows(self) -> tuple[list[Arrow], int]:
        """Flows between drawn nodes, through whatever is not drawn between them."""
        origins: dict[str, dict[str, tuple[Value | None, int]]] = {}
        found: dict[tuple[str, str], Arrow] = {}
        hidden = 0
        for node in sorted(self._net.nodes.values(), key=lambda node: node.position):
            drawn = self._stands_for.get(node.id)
            hidden += drawn is None
            arriving: dict[str, tuple[Value | None, int]] = {}
            for edge in self._net.into.get(node.id, ()):
                if edge.kind == "memory" and not self._everything:
                    continue
                turn = self._turn.get(edge.source, 0)
                source = self._stands_for.get(edge.source)
                sources = {source: (edge.value, turn)} if source is not None else origins.get(edge.source, {})
                arriving |= sources
            if drawn is None:
                if node.kind in ("placeholder", "output") or node.value is not None:  # a size is not data
                    origins[node.id] = arriving
                continue
            for source, (value, turn) in arriving.items():
                backwards = turn != self._turn.get(node.id, 0) and self._order(source) >= self._order(drawn)
                if source != drawn and not backwards:
                    found.setdefault((source, drawn), Arrow(source, drawn, value))
        return list(found.values()), hidden

    def _order(self, id: str) -> int:
        return self._net.nodes[id].position
