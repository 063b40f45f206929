"""The arrows of a drawing: flows of values between drawn steps, through the nodes that are not drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.exports.drawing.drawing import Arrow, ArrowKind, Step
from fxdebug.features.diagrams.loops import Turns
from fxdebug.query.edges import place_returned
from fxdebug.query.network import Network, Node

OUTPUTS = 8  # results of the model that get a step of their own, at most


class _Origin(NamedTuple):
    """A drawn step whose result arrives at a node; ``step`` is empty where it is not known."""

    step: str
    value: Value | None
    memory: bool = False
    node: str = ""  # the very node that made the value, in one of the repetitions
    place: tuple[str, ...] | None = None  # in what the model returns


# source, target, shape, and whether the next turn of a loop takes it
_ArrowKey: TypeAlias = tuple[str, str, tuple[int, ...] | int | None, bool]


class ArrowBuilder:
    """Build the arrows between ``steps``, and add a step for each output of the model."""

    def __init__(
        self, trace: TraceData, net: Network, steps: dict[str, Step], stands_for: dict[str, str], turns: Turns
    ) -> None:
        self._trace = trace
        self._net = net
        self._steps = steps
        self._stands_for = stands_for
        self._turns = turns
        self._arrows: dict[_ArrowKey, Arrow] = {}

    def build(self) -> list[Arrow]:
        """Return all arrows: one for each shape that flows from one step to another, and those of execution order."""
        origins: dict[str, list[_Origin]] = {}  # undrawn node → origins of its values
        unknown: dict[str, None] = {}  # steps with an input of unknown origin, in order
        root = self._net.call_id(self._trace.root)
        for node in self._net.nodes.values():
            drawn = self._stands_for.get(node.id)
            arriving: dict[tuple[object, ...], _Origin] = {}
            for origin in self._arriving(node, origins):
                arriving.setdefault((origin.step, origin.node, _number(origin.value), origin.place), origin)
            if not arriving and self._takes_a_tensor(node):
                arriving["",] = _Origin("", node.value)
            if drawn is None:
                if node.kind in ("placeholder", "output") or node.value is not None:  # a size is not data
                    origins[node.id] = _passed_on(node, list(arriving.values()))
                if node.id == root:
                    self._add_outputs(node, origins.get(root, []))
                continue
            if node.id == root:  # the root is drawn as one closed step
                self._add_outputs(node, [_Origin(drawn, value) for value in node.values])
            for origin in arriving.values():
                if not origin.step:
                    unknown[drawn] = None
                    continue
                kind = self._kind(origin, node, drawn)
                if kind is not None:
                    shape = self._shape_key(origin)
                    if kind == "carried" and isinstance(shape, tuple):
                        shape = len(shape)  # a cache grows from turn to turn
                    key = origin.step, drawn, shape, kind == "carried"
                    arrow = self._arrows.setdefault(key, Arrow(origin.step, drawn, origin.value, kind))
                    if origin.value is not None:
                        arrow.shapes.setdefault(origin.value.shape)
        reached = {target for _, target, _, _ in self._arrows}
        return [*self._arrows.values(), *self._in_order(unknown, reached)]

    def _kind(self, origin: _Origin, node: Node, drawn: str) -> ArrowKind | None:
        """Return the kind of arrow to a drawn step; none leads from one layer to the next that is drawn with it."""
        is_inside = origin.step == drawn
        maker = self._net.nodes[origin.node]
        turn = self._turns.between(maker, node)
        if turn == "loop":
            return "carried"
        if self._position(origin.step) < self._position(drawn):
            return "memory" if origin.memory else "data"
        in_loop = not turn and not is_inside and any(map(self._turns.is_in_loop, (maker, node)))
        return "carried" if in_loop else None

    def _shape_key(self, origin: _Origin) -> tuple[int, ...] | int | None:
        """Return the shape that flows; its number of sizes, where they differ from one repetition to the next."""
        if origin.value is None:
            return None
        grows = len({value.shape for value in self._steps[origin.step].values}) > 1
        return len(origin.value.shape) if grows else origin.value.shape

    def _takes_a_tensor(self, node: Node) -> bool:
        """Does a tensor arrive at this node, other than as an input of the model?"""
        if node.kind == "placeholder":
            return node.call.parent is not None and node.value is not None
        return node.kind == "call_module" and not self._net.steps(node.call) and len(node.call.inputs) > 0

    def _in_order(self, unknown: dict[str, None], reached: set[str]) -> Iterator[Arrow]:
        """Yield arrows from the preceding step to steps with an unknown input that no other arrow reaches."""
        ran = sorted((step for step in self._steps.values() if step.kind != "output"), key=lambda s: s.node.position)
        for before, step in itertools.pairwise(ran):
            if step.id in unknown and step.id not in reached:
                yield Arrow(before.id, step.id, None, "order")

    def _arriving(self, node: Node, origins: dict[str, list[_Origin]]) -> Iterator[_Origin]:
        for edge in self._net.into.get(node.id, ()):
            memory = edge.kind == "memory"
            source = self._stands_for.get(edge.source)
            found = (
                origins.get(edge.source, ()) if source is None else [_Origin(source, edge.value, memory, edge.source)]
            )
            is_returned = node.kind == "output" and node.call.parent is None
            for origin in found:
                place = place_returned(edge.argument) if is_returned else origin.place
                yield origin._replace(memory=memory or origin.memory, place=place)

    def _add_outputs(self, root: Node, arriving: list[_Origin]) -> None:
        """Add a step for each tensor that the model returned by itself or in a field, but not for those in caches."""
        slots = () if root.call.outputs is None else list(root.call.outputs.named())
        named = [(slot, value) for slot, value in slots if slot.count(".") + slot.count("[") <= slot.startswith("[")]
        for slot, value in named[:OUTPUTS]:
            id = f"{root.id}→{slot}"
            sources = [origin for origin in arriving if _number(origin.value) == value.number]
            place = place_returned(slot)  # one tensor may be returned as the result of several operations
            sources = [origin for origin in sources if origin.place == place] or sources
            if sources:
                self._steps[id] = Step(id, "output", root, slot or "output", (value,))
                for origin in sources:
                    if origin.step:
                        self._arrows[origin.step, id, None, False] = _arrow(origin, id)

    def _position(self, id: str) -> int:
        return self._steps[id].node.position


def _arrow(origin: _Origin, target: str) -> Arrow:
    return Arrow(origin.step, target, origin.value, "memory" if origin.memory else "data")


def _number(value: Value | None) -> int | None:
    return None if value is None else value.number


def _passed_on(node: Node, arriving: list[_Origin]) -> list[_Origin]:
    """Return the origins that a node passes on without being drawn: those of its own values."""
    numbers = {value.number for value in node.values}
    arrived = {_number(origin.value) for origin in arriving}
    written = {value.storage for value in node.values if value.number not in arrived and value.storage is not None}
    own = [o for o in arriving if o.value is None or o.value.number in numbers or o.value.storage in written]
    return own or arriving
