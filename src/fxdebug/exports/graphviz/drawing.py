"""What of a run is drawn: calls as boxes in boxes, the operations between them, repeated layers once.

A :class:`Drawing` is decided here, in terms of the trace; ``dot`` only writes it down.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.graphs import OPAQUE, RECORDED, VERIFIED
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Stats, Value, pooled
from fxdebug.exports.graphviz.grouping import REARRANGING, GraphSignatures, joined
from fxdebug.query.folding import FoldedCalls, fold_repeated
from fxdebug.query.network import Network, Node, network_of

READABLE = 60  # steps that a person takes in at a glance
DEEPEST = 12  # levels that are opened unasked
OUTPUTS = 8  # results of the model that get a node of their own

_BAD_TO_GOOD = (OPAQUE, RECORDED, VERIFIED)


@dataclass
class Box:
    """A call that is drawn open: a cluster with boxes and steps in it."""

    row: FoldedCalls
    status: str | None = None
    boxes: list[Box] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass
class Step:
    """One drawn node: an operation, a closed call, an input or output; for repeated layers it stands for all.

    ``kind`` is ``op``, ``arranging``, ``call``, ``input`` or ``output``. ``repeats`` is how often a closed
    call is repeated where it stands, ``values`` has its first result in every repetition of its box, ``twins``
    are the ids of the nodes that it is there.
    """

    id: str
    kind: str
    node: Node
    title: str
    values: tuple[Value, ...]
    status: str | None = None
    repeats: int = 1
    twins: tuple[str, ...] = ()
    merged: list[Node] = field(default_factory=list)  # arranging steps that follow and are drawn with it

    @property
    def stats(self) -> Stats | None:
        """The statistics of its first result, pooled over the repetitions."""
        known = [value.stats for value in self.values if value.stats is not None]
        return pooled(known) if known else None

    @property
    def failed(self) -> bool:
        """Is it a call that raised?"""
        return self.kind == "call" and self.node.call.error is not None


@dataclass
class Arrow:
    """What leads from one drawn node to another.

    ``kind`` is ``data``; ``memory`` where the target sees what the source wrote into memory or an object; or
    ``order`` where the target only ran next, and nobody knows where its input came from.
    """

    source: str
    target: str
    value: Value | None
    kind: str = "data"


@dataclass
class Drawing:
    """Boxes, steps and arrows, by the ids of the nodes that are drawn. ``root`` is absent where it is closed.

    ``stands_for`` has, for every node of the run that is seen, the drawn one that stands for it.
    """

    root: Box | None
    steps: dict[str, Step]
    arrows: list[Arrow]
    depth: int | None
    stands_for: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """Which calls to draw open, by their indices, and what else must be equal for repetitions to be drawn as one."""

    opened: Collection[int]
    alike: Callable[[Call], object]


def drawing(
    trace: TraceData,
    *,
    depth: int | None = None,
    fold: bool = True,
    leaves: bool = False,
    everything: bool = False,
    chosen: Chosen | None = None,
) -> Drawing:
    """Decide what is drawn.

    ``depth``: calls at this depth stay closed; ``None`` opens as many levels as stay readable. Calls
    without calls in them stay closed too (a Linear is one box), unless ``leaves``. Steps that give no tensor
    (sizes) or only take or read one are left out, and rearranging ones joined, unless ``everything``.
    ``chosen`` says one by one which calls are open, in place of ``depth`` and ``leaves``.
    """
    net = network_of(trace)
    if depth is None and not everything and chosen is None:
        depth = _readable_depth(trace, net, fold, leaves)
    return _DrawingBuilder(trace, net, depth, fold, leaves, everything, chosen).drawing()


def size(
    trace: TraceData,
    *,
    depth: int | None = None,
    fold: bool = True,
    leaves: bool = False,
    everything: bool = False,
    chosen: Chosen | None = None,
) -> int:
    """How many steps a drawing would have, about: rearranging ones do not count."""
    return _DrawingBuilder(trace, network_of(trace), depth, fold, leaves, everything, chosen).count()


def _readable_depth(trace: TraceData, net: Network, fold: bool, leaves: bool) -> int:
    deepest = max(call.depth for call in trace.calls)
    best = 1
    for depth in range(1, min(deepest + 1, DEEPEST) + 1):
        if _DrawingBuilder(trace, net, depth, fold, leaves, False).count() > READABLE:
            break
        best = depth
    return best


def worst(statuses: Iterator[str | None]) -> str | None:
    """The status that says least."""
    found = set(statuses)
    return next((status for status in _BAD_TO_GOOD if status in found), None)


class _Origin(NamedTuple):
    """A drawn node whose result arrives somewhere; an empty ``step`` is not known."""

    step: str
    value: Value | None
    memory: bool = False


_Key: TypeAlias = tuple[str, str, tuple[int, ...] | None]  # from, to, shape


class _DrawingBuilder:
    def __init__(
        self,
        trace: TraceData,
        net: Network,
        depth: int | None,
        fold: bool,
        leaves: bool,
        everything: bool,
        chosen: Chosen | None = None,
    ) -> None:
        self._trace = trace
        self._net = net
        self._depth = depth
        self._leaves = leaves or everything
        self._everything = everything
        self._chosen = chosen
        shapes = GraphSignatures(net)
        alike = shapes.of if chosen is None else lambda call: (shapes.of(call), chosen.alike(call))
        self._rows = fold_repeated(trace, fold=fold, depth=depth, alike=alike)
        self._steps: dict[str, Step] = {}
        self._stands_for: dict[str, str] = {}  # every node's id → the drawn node that stands for it
        self._by_call: dict[int, list[Node]] = {}
        for node in net.nodes.values():
            if node.kind != "call_module":
                self._by_call.setdefault(node.call.index, []).append(node)

    def drawing(self) -> Drawing:
        """Boxes first, then the arrows between what is drawn."""
        root = self._boxes()
        for node in self._by_call.get(0, ()):
            if node.kind == "placeholder" and (node.values or self._everything):
                self._add(Step(node.id, "input", node, node.target, node.values[:1]), (node.id,))
        arrows = self._arrows()
        if not self._everything and root is not None:
            arrows = joined(root, self._steps, arrows)
        return Drawing(root, self._steps, arrows, self._depth, self._stands_for)

    def count(self) -> int:
        """How many steps that do more than rearrange would be drawn."""
        self._boxes()
        return sum(step.kind != "arranging" for step in self._steps.values())

    # Boxes and steps -----------------------------------------------------------------------------

    def _boxes(self) -> Box | None:
        if self._depth == 0:
            self._closed(self._rows)
            return None
        root = Box(self._rows, _status(self._rows.calls))
        stack = [root]
        while stack:  # models may be nested deeper than Python may call
            current = stack.pop()
            self._open(current)
            for child in current.row.children:
                if self._is_open(child):
                    current.boxes.append(Box(child, _status(child.calls)))
                else:
                    current.steps.append(self._closed(child))
            stack.extend(current.boxes)
        return root

    def _is_open(self, row: FoldedCalls) -> bool:
        if self._chosen is not None:
            return row.first.index in self._chosen.opened and bool(row.children or self._net.steps(row.first))
        if self._depth is not None and row.first.depth >= self._depth:
            return False
        return bool(row.children) or (self._leaves and len(self._net.steps(row.first)) > 2)

    def _open(self, box: Box) -> None:
        """Draw a call's own operations; those of its repetitions are stood for by the first one's."""
        first, calls = box.row.first, box.row.calls
        for node in self._by_call.get(first.index, ()):
            if not self._is_drawn(node):
                continue
            alike = [twin for call in calls if (twin := self._twin(call, node)) is not None]
            kind = "arranging" if node.op in REARRANGING and not self._everything else "op"
            values = tuple([twin.values[0] for twin in alike if twin.values])
            status = worst(twin.status for twin in alike)
            ids = tuple([twin.id for twin in alike])
            box.steps.append(self._add(Step(node.id, kind, node, node.op, values, status, twins=ids), ids))

    def _twin(self, call: Call, node: Node) -> Node | None:
        """The same node of another repetition: their graphs are alike, so its name is the same."""
        return self._net.nodes.get(f"{self._net.call_id(call)}/{node.id.rpartition('/')[2]}")

    def _closed(self, row: FoldedCalls) -> Step:
        """A call as one node, with everything inside it going into it."""
        node = self._net.nodes[self._net.call_id(row.first)]
        values = tuple([v for call in row.calls if (v := next(iter(call.outputs or ()), None)) is not None])
        inner = [call for repeated in row.calls for call in repeated.walk()]
        ids = [self._net.call_id(call) for call in inner]
        ids += [n.id for call in inner for n in self._by_call.get(call.index, ())]
        own = tuple([self._net.call_id(call) for call in row.calls])
        step = Step(node.id, "call", node, row.name, values, _status(inner), row.repeats, own)
        return self._add(step, ids)

    def _add(self, step: Step, ids: list[str] | tuple[str, ...]) -> Step:
        self._steps[step.id] = step
        self._stands_for.update(dict.fromkeys(ids, step.id))
        return step

    def _is_drawn(self, node: Node) -> bool:
        if node.kind in ("placeholder", "output"):
            return False
        if self._everything or node.id in self._net.writers:
            return True
        if node.kind == "get_attr" or node.value is None or ".make_" in node.target:
            return False
        return not self._takes_a_part(node)

    def _takes_a_part(self, node: Node) -> bool:
        """Does the node only take an item out of a tuple, list or dict that another one returned?"""
        if node.target.rpartition(".")[2] not in ("getitem", "getattr") or node.kind != "call_function":
            return False
        whole = next((self._net.nodes[edge.source] for edge in self._net.into.get(node.id, ())), None)
        return whole is not None and isinstance(whole.item, Group)

    # Arrows --------------------------------------------------------------------------------------

    def _arrows(self) -> list[Arrow]:
        """Flows between drawn nodes, through whatever is not drawn between them."""
        origins: dict[str, list[_Origin]] = {}
        found: dict[_Key, Arrow] = {}
        lost: dict[str, None] = {}  # steps that were given something of which nobody knows where it came from
        root = self._net.call_id(self._trace.root)
        for node in self._net.nodes.values():
            drawn = self._stands_for.get(node.id)
            arriving: dict[tuple[str, int | None], _Origin] = {}
            for origin in self._arriving(node, origins):
                arriving.setdefault((origin.step, _number(origin.value)), origin)
            if not arriving and self._was_given(node):
                arriving["", None] = _Origin("", node.value)
            if drawn is None:
                if node.kind in ("placeholder", "output") or node.value is not None:  # a size is not data
                    origins[node.id] = _passed_on(node, list(arriving.values()))
                if node.id == root:
                    self._outputs(node, origins.get(root, []), found)
                continue
            if node.id == root:  # drawn as one closed node
                self._outputs(node, [_Origin(drawn, value) for value in node.values], found)
            for origin in arriving.values():
                if not origin.step:
                    lost[drawn] = None
                elif self._order(origin.step) < self._order(drawn):  # what one repetition hands to the next is not
                    label = None if origin.value is None else origin.value.shape
                    found.setdefault((origin.step, drawn, label), _arrow(origin, drawn))
        return [*found.values(), *self._in_order(lost, {target for _, target, _ in found})]

    def _was_given(self, node: Node) -> bool:
        """Is it something in which a tensor arrives, other than the model's inputs?"""
        if node.kind == "placeholder":
            return node.call.parent is not None and node.value is not None
        return node.kind == "call_module" and not self._net.steps(node.call) and len(node.call.inputs) > 0

    def _in_order(self, lost: dict[str, None], reached: set[str]) -> Iterator[Arrow]:
        """Arrows from the step that ran before, to those that no data is known to reach."""
        ran = sorted((step for step in self._steps.values() if step.kind != "output"), key=lambda s: s.node.position)
        for before, step in itertools.pairwise(ran):
            if step.id in lost and step.id not in reached:
                yield Arrow(before.id, step.id, None, "order")

    def _arriving(self, node: Node, origins: dict[str, list[_Origin]]) -> Iterator[_Origin]:
        for edge in self._net.into.get(node.id, ()):
            memory = edge.kind == "memory"
            source = self._stands_for.get(edge.source)
            if source is not None:
                yield _Origin(source, edge.value, memory)
            else:
                yield from (origin._replace(memory=memory or origin.memory) for origin in origins.get(edge.source, ()))

    def _outputs(self, root: Node, arriving: list[_Origin], found: dict[_Key, Arrow]) -> None:
        """A node for each tensor that the model returned by itself or in a field; none for those in caches."""
        slots = () if root.call.outputs is None else list(root.call.outputs.named())
        named = [(slot, value) for slot, value in slots if slot.count(".") + slot.count("[") <= slot.startswith("[")]
        for slot, value in named[:OUTPUTS]:
            id = f"{root.id}→{slot}"
            sources = [origin for origin in arriving if _number(origin.value) == value.number]
            if sources:
                self._steps[id] = Step(id, "output", root, slot or "output", (value,))
                for origin in sources:
                    if origin.step:
                        found[origin.step, id, None] = _arrow(origin, id)

    def _order(self, id: str) -> int:
        return self._steps[id].node.position


def _arrow(origin: _Origin, target: str) -> Arrow:
    return Arrow(origin.step, target, origin.value, "memory" if origin.memory else "data")


def _number(value: Value | None) -> int | None:
    return None if value is None else value.number


def _status(calls: tuple[Call, ...] | list[Call]) -> str | None:
    return worst(call.status for call in calls)


def _passed_on(node: Node, arriving: list[_Origin]) -> list[_Origin]:
    """Of what arrives at a node that only passes things on, what it passes on: its own values."""
    numbers = {value.number for value in node.values}
    arrived = {_number(origin.value) for origin in arriving}
    written = {value.storage for value in node.values if value.number not in arrived and value.storage is not None}
    kept = [o for o in arriving if o.value is None or o.value.number in numbers or o.value.storage in written]
    return kept or arriving
