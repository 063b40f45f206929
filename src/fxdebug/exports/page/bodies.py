"""The bodies of calls, as the page lays them out: one for each distinct forward, shared by the calls that did it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.graphs import CallGraph, Op, refs_in
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Value, leaves, shape_text
from fxdebug.exports.drawing.drawing import REARRANGING
from fxdebug.exports.page.pack import NONE, Texts, firsts, integers
from fxdebug.query.edges import TakenInside, place_returned, taken_past_arguments
from fxdebug.query.network import network_of

Origin: TypeAlias = tuple[int, int]  # an item of the body (below 0: input ~item), and which of its results
OPERATION, VIEWS, STRUCTURE, CALL = range(4)  # the kinds of items, by position in ITEM_KINDS of payload.ts

_TAKES_A_PART: Final = ("getitem", "getattr")
_WHOLE: Final = re.compile(r"^(?:args\[\d+\]|[^.\[]*)")  # the argument in the slot of its part
_VARIADIC: Final = re.compile(r"args?_?\d+")
_NUMBERED: Final = re.compile(r"_\d+$")  # the graph's name of a part


class Edge(NamedTuple):
    """A tensor that an item reads: who made it, which argument it becomes, which result of its maker it is."""

    source: int
    argument: int
    output: int


class BodyItem(NamedTuple):
    """An operation or a call of a body; texts are positions in the page's texts."""

    kind: int
    label: int
    type: int
    shape: int
    body: int
    step: int  # the position in the graph, -1 without one
    edges: tuple[Edge, ...]
    health: int  # 0 where all is well; items that differ in it are not drawn as one


@dataclass(frozen=True, slots=True)
class Body:
    """One distinct forward: inputs as (name, shape), items, and outputs as (item, result, name)."""

    title: int
    inputs: tuple[tuple[int, int], ...]
    items: tuple[BodyItem, ...]
    outputs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Bodies:
    """The distinct bodies of a run; by call the position of its body (-1: nothing is seen) and of its item outside."""

    distinct: tuple[Body, ...]
    of_call: tuple[int, ...]
    item_of_call: tuple[int, ...]


class _Step(NamedTuple):
    """One step of a graph, prepared once for all calls that share it."""

    op: Op
    kind: int
    label: str
    operands: tuple[tuple[int, str], ...]  # the place among the arguments, and the position of the step that is read
    sources: tuple[int, ...]


def bodies_of(trace: TraceData, texts: Texts, key: Callable[[Call], Hashable] = lambda call: None) -> Bodies:
    """Return the body of every call, children before the calls around them; equal ones with equal keys are one.

    Forwards of which one raised, or has a NaN or an infinity where the other has none, are not equal.
    """
    return _Builder(trace, texts, key).build()


class _Builder:
    def __init__(self, trace: TraceData, texts: Texts, key: Callable[[Call], Hashable]) -> None:
        self._trace, self._texts, self._key = trace, texts, key
        self._health: dict[Hashable, int] = {(False, False, None): 0}
        graphs = trace.call_graphs
        self._bodies: tuple[CallGraph | None, ...] = (None,) * len(trace.calls) if graphs is None else graphs.bodies
        self._graphs: dict[int, tuple[_Step, ...]] = {}
        self._known: dict[tuple[Body, Hashable], int] = {}
        self._of_call = [NONE] * len(trace.calls)
        self._item_of_call = [NONE] * len(trace.calls)
        self._ports: list[dict[int, int]] = [{} for _ in trace.calls]  # by call: number of a value → input
        self._shapes: dict[tuple[int, ...], int] = {}
        self._memory = self._edges_through_memory()
        self._taken_inside: dict[int, list[TakenInside]] | None = None
        self.ports_taken: dict[int, dict[str, int]] = {}  # by call: the read of an attribute → the input for its tensor
        self._feeds: dict[int, dict[int, Origin]] = {}

    def build(self) -> Bodies:
        for call in reversed(self._trace.calls):
            body = self._body(call)
            if body is not None:
                self._of_call[call.index] = self._known.setdefault((body, self._key(call)), len(self._known))
        return Bodies(tuple([body for body, _ in self._known]), tuple(self._of_call), tuple(self._item_of_call))

    def _edges_through_memory(self) -> dict[str, dict[str, list[str]]]:
        """Return, by node and argument, the nodes that wrote what is read there; empty where nothing is written."""
        if not any(body is not None and body.writes for body in self._bodies):
            return {}
        found: dict[str, dict[str, list[str]]] = {}
        for edge in network_of(self._trace).edges:
            if edge.kind == "memory":
                found.setdefault(edge.target, {}).setdefault(edge.argument, []).append(edge.source)
        return found

    # One call --------------------------------------------------------------------------------------

    def _body(self, call: Call) -> Body | None:
        body = self._bodies[call.index]
        if body is not None and body.graph is not None and self._steps(body.graph):
            return _GraphBody(self, call, body, self._steps(body.graph)).build()
        if not call.children:
            self._ports[call.index] = {value.number: k for k, value in enumerate(call.inputs)}
            return None
        return self._body_by_values(call)

    def _body_by_values(self, call: Call) -> Body:
        """Return the body of a call without a graph: equal values tell which result became which argument."""
        texts = self._texts
        makers: dict[int, Origin] = {}
        inputs = []
        for k, (slot, value) in enumerate(call.inputs.named()):
            inputs.append((texts.add(slot), self.shape(value)))
            makers.setdefault(value.number, (~k, 0))
        self._ports[call.index] = {number: ~source for number, (source, _) in makers.items()}
        items = []
        for position, child in enumerate(call.children):
            edges = (*self.by_values(child, makers), *self._edges_in_objects(call, child))
            items.append(self.child_item(call, child, NONE, position, tuple(dict.fromkeys(edges))))
            for output, value in enumerate(child.outputs or ()):
                makers[value.number] = position, output
        outputs = [
            (*makers[value.number], texts.add(slot))
            for slot, value in (() if call.outputs is None else call.outputs.named())
            if value.number in makers
        ]
        return Body(texts.add(call.type), tuple(inputs), tuple(items), tuple(outputs))

    def _edges_in_objects(self, call: Call, child: Call) -> Iterator[Edge]:
        """Yield the edges into a call of what lies in objects that it is given, or in attributes."""
        ports = self.ports_taken.get(child.index, {})
        for each in self.taken_inside(child):
            item = self.item_around(each.source, call)
            if item is not None and each.read in ports:
                yield Edge(item, ports[each.read], 0)

    def by_values(self, child: Call, makers: Mapping[int, Origin]) -> tuple[Edge, ...]:
        """Return the edges into a call whose arguments are found by their values."""
        ports = self._ports[child.index]
        edges = []
        for k, value in enumerate(child.inputs):
            if value.number in makers:
                source, output = makers[value.number]
                edges.append(Edge(source, ports.get(value.number, k), output))
        return tuple(dict.fromkeys(edges))

    def child_item(self, call: Call, child: Call, step: int, item: int, edges: tuple[Edge, ...]) -> BodyItem:
        """Return the item that a call is in the body of the call around it."""
        texts = self._texts
        self._item_of_call[child.index] = item
        name = child.path[len(call.path) + 1 :] if call.path and child.path.startswith(call.path + ".") else child.path
        value = next(iter(child.outputs or ()), None)
        body = self._of_call[child.index]
        return BodyItem(
            CALL, texts.add(name or child.type), texts.add(child.type), self.shape(value), body, step, edges,
            self.health(child.outputs or (), child.error is not None, self._key(child)),
        )  # fmt: skip

    def health(self, made: Iterable[Value], raised: bool = False, key: Hashable = None) -> int:
        """Return a number for what sets an item apart from others that do the same."""
        spoiled = any(value.stats is not None and value.stats.finite < value.stats.count for value in made)
        return self._health.setdefault((raised, spoiled, key), len(self._health))

    # What several calls need -------------------------------------------------------------------------

    def taken_inside(self, call: Call) -> list[TakenInside]:
        """Return what a call reads besides its arguments, as additional inputs."""
        if self._taken_inside is None:
            has_graphs = any(body is not None and body.graph is not None for body in self._bodies)
            self._taken_inside = taken_past_arguments(network_of(self._trace)) if has_graphs else {}
        return self._taken_inside.get(call.index, [])

    def item_around(self, source: str, call: Call) -> int | None:
        """Return the item of the call, in the body of another, in which a node is; ``None`` if it is elsewhere."""
        inside: Call | None = network_of(self._trace).nodes[source].call
        while inside is not None and inside.parent is not call:
            inside = inside.parent
        return None if inside is None or self._item_of_call[inside.index] == NONE else self._item_of_call[inside.index]

    def shape(self, value: Value | None) -> int:
        if value is None:
            return NONE
        known = self._shapes.get(value.shape)
        if known is None:
            known = self._shapes[value.shape] = self._texts.add(shape_text(value.shape) if value.shape else "scalar")
        return known

    def _steps(self, graph: int) -> tuple[_Step, ...]:
        known = self._graphs.get(graph)
        if known is None:
            known = self._graphs[graph] = _prepared(self._trace.graphs[graph].ops)
        return known


def _prepared(ops: tuple[Op, ...]) -> tuple[_Step, ...]:
    positions = {op.name: i for i, op in enumerate(ops)}
    steps = []
    for op in ops:
        operands: list[tuple[int, str]] = []
        sources: list[int] = []
        for argument, operand in enumerate([*op.args, *op.kwargs.values()]):
            name = f"args[{argument}]" if argument < len(op.args) else list(op.kwargs)[argument - len(op.args)]
            for place, source in refs_in(operand):
                if source in positions:
                    operands.append((len(operands), (place or "result") if op.kind == "output" else name + place))
                    sources.append(positions[source])
        kind = CALL if op.kind == "call_module" else VIEWS if op.op in REARRANGING else OPERATION
        steps.append(_Step(op, kind, op.op.removeprefix("make_"), tuple(operands), tuple(sources)))
    return tuple(steps)


class _GraphBody:
    """Build the body of one call along its graph."""

    def __init__(self, builder: _Builder, call: Call, body: CallGraph, steps: tuple[_Step, ...]) -> None:
        self._builder, self._call, self._body, self._steps = builder, call, body, steps
        self._item_at = [NONE] * len(steps)  # by step: its item, below 0 an input
        self._is_structure = [False] * len(steps)
        self._makers: dict[int, Origin] = {}
        self._parts: dict[int, dict[int, Origin]] = {}  # of a step that only passes on: number of a value → its maker
        self._items: list[BodyItem] = []
        self._taken: dict[str, int] = {}  # by the read of an attribute: the input by which its tensor enters
        self._positions = {step.op.name: i for i, step in reversed(list(enumerate(steps)))}
        self._calls: dict[str, int] | None = None  # by id, once they are asked for
        self._written: dict[int, list[Value]] = {}  # by the step that wrote to them
        for position, value in body.writes:
            self._written.setdefault(position, []).append(value)
        self._slots = {value.number: slot for slot, value in call.inputs.named()}

    def build(self) -> Body:
        builder, call, texts = self._builder, self._call, self._builder._texts
        children = iter(self._body.calls)
        inputs: list[tuple[int, int]] = []
        outputs: tuple[tuple[int, int, int], ...] = ()
        count = 0
        placeholders = sum(step.op.kind == "placeholder" for step in self._steps)
        self._number_inputs_taken(placeholders)
        more = len(set(self._taken.values()))
        for position, step in enumerate(self._steps):
            kind = step.op.kind
            if kind != "placeholder" and len(inputs) < placeholders + more:
                inputs += self._inputs_taken()
            if kind == "placeholder":
                values = _values(self._body.results[position])
                self._item_at[position] = ~len(inputs)
                for value in values:
                    self._makers.setdefault(value.number, (~len(inputs), 0))
                    builder._ports[call.index].setdefault(value.number, len(inputs))
                name = self._argument(step.op.target, values)
                inputs.append((name, builder.shape(values[0] if values else None)))
            elif kind == "get_attr":
                self._is_structure[position] = True
            elif kind == "output":
                outputs = self._outputs(step)
            else:
                self._item_at[position] = count
                self._items.append(self._item(position, step, children, count))
                count += 1
        seen = set(self._body.calls)
        for child in call.children:  # that raised, or ran in a thread
            if child.index not in seen:
                edges = builder.by_values(child, self._makers)
                self._items.append(builder.child_item(call, child, NONE, len(self._items), edges))
        return Body(texts.add(call.type), tuple(inputs), tuple(self._items), outputs)

    def _argument(self, target: str, values: list[Value]) -> int:
        """Return an argument as the forward calls it: ``x``, and ``batch.image`` for a part of ``batch``."""
        slot = self._slots.get(values[0].number, "") if values else ""
        part = _WHOLE.sub("", slot)
        if slot and _VARIADIC.fullmatch(target):
            target = slot
        elif part:
            target = _NUMBERED.sub("", target) + part
        return self._builder._texts.add(target)

    def _item(self, position: int, step: _Step, children: Any, count: int) -> BodyItem:
        builder, result = self._builder, self._body.results[position]
        if step.kind == CALL:
            child = builder._trace.calls[next(children)]
            made = list(child.outputs or ())
            edges = self._edges_into_call(step, child)
            item = builder.child_item(self._call, child, position, count, edges)
        else:
            made = _values(result)
            kind = step.kind
            if self._makes_nothing(position, step, made):
                self._is_structure[position] = True
                kind = STRUCTURE
            edges = self._edges(position, step)
            left = self._call_that_left(step) if not edges and step.op.target.endswith(_TAKES_A_PART) else None
            if left is not None:
                edges = (Edge(left, 0, 0),)
            if kind == STRUCTURE:
                self._parts[position] = self._passed_on(step, made)
            shape = builder.shape(made[0] if made else None)
            label = builder._texts.add(step.label)
            item = BodyItem(kind, label, NONE, shape, NONE, position, edges, builder.health(made))
        for output, value in enumerate(made):
            self._makers.setdefault(value.number, (count, output))
        for value in self._written.get(position, ()):
            self._makers[value.number] = count, 0
        return item

    def _makes_nothing(self, position: int, step: _Step, made: list[Value]) -> bool:
        """Is the step no operation on tensors: a size, a tuple, an output class, a part of a tuple?"""
        if position in self._written:
            return False
        if not made or step.op.op.startswith("make_"):
            return True
        if step.op.target.rpartition(".")[2] not in _TAKES_A_PART:
            return False
        of_tuple = bool(step.sources) and isinstance(self._body.results[step.sources[0]], Group)
        return of_tuple or all(value.number in self._makers for value in made)

    def _edges(self, position: int, step: _Step) -> tuple[Edge, ...]:
        edges: list[Edge] = []
        through = self._through_memory(step)
        for (argument, name), source in zip(step.operands, step.sources):
            if name in through:
                edges += [Edge(item, argument, 0) for item in through[name]]
                continue
            whole = self._body.results[source]
            if isinstance(whole, Group) and step.op.target.rpartition(".")[2] in _TAKES_A_PART:
                whole = self._body.results[position]  # only the part that is taken
            edges += [Edge(item, argument, output) for item, output in self._origins(source, whole)]
        return tuple(dict.fromkeys(edges))

    def _through_memory(self, step: _Step) -> dict[str, list[int]]:
        """Return, by argument, the items that wrote what the step reads there."""
        if not self._builder._memory:
            return {}
        net = network_of(self._builder._trace)
        own = net.call_id(self._call)
        listed = self._builder._memory.get(f"{own}/{step.op.name}", {})
        return {
            argument: items
            for argument, sources in listed.items()
            if (items := [item for source in sources if (item := self._item_of_node(own, source)) != NONE])
        }

    def _item_of_node(self, own: str, id: str) -> int:
        """Return the item of a node of this call, or of a call made here; -1 for one that is elsewhere."""
        if id.startswith(own + "/"):
            name = id[len(own) + 1 :]
            position = self._positions.get(name, NONE)
            return self._item_at[position] if position >= 0 else NONE
        net = network_of(self._builder._trace)
        if self._calls is None:
            self._calls = {net.call_id(self._builder._trace.calls[i]): i for i in reversed(self._body.calls)}
        index = self._calls.get(id, NONE)
        return self._builder._item_of_call[index] if index >= 0 else NONE

    def _origins(self, source: int, whole: Item) -> list[Origin]:
        """Return where the tensors of a result come from, seen through steps that only pass them on."""
        values = _values(whole)
        if not self._is_structure[source]:
            item = self._item_at[source]
            if not values:
                return []
            if len(values) == 1 and isinstance(self._body.results[source], Value):
                return [(item, 0)]
            made = self._numbers_of(source)
            return list(dict.fromkeys([(item, made.get(value.number, 0)) for value in values]))
        makers = self._makers | self._parts.get(source, {})
        return list(dict.fromkeys([makers[value.number] for value in values if value.number in makers]))

    def _number_inputs_taken(self, first: int) -> None:
        """Number the inputs by which tensors enter that are no arguments; all that comes in an object has one."""
        builder, nodes = self._builder, network_of(self._builder._trace).nodes
        ports: dict[str, int] = {}
        own: dict[str, int] = {}
        for read in dict.fromkeys([each.read for each in builder.taken_inside(self._call)]):
            if nodes[read].kind != "placeholder":
                self._taken[read] = ports.setdefault(read, first + len(ports))
            elif nodes[read].call is not self._call:
                self._taken[read] = ports.setdefault("", first + len(ports))
            else:
                name = read.rpartition("/")[2]
                own[read] = [step.op.name for step in self._steps if step.op.kind == "placeholder"].index(name)
        builder.ports_taken[self._call.index] = self._taken | own

    def _inputs_taken(self) -> list[tuple[int, int]]:
        """Return the inputs by which tensors enter that are no arguments; the placeholders stand before these."""
        builder, nodes = self._builder, network_of(self._builder._trace).nodes
        inputs: dict[int, tuple[int, int]] = {}
        for read, port in self._taken.items():
            node = nodes[read]
            if node.kind == "placeholder":
                inputs.setdefault(port, (builder._texts.add("cache"), NONE))
                continue
            inputs[port] = builder._texts.add(node.target), builder.shape(node.value)
            for value in node.values:
                self._makers.setdefault(value.number, (~port, 0))
        return [inputs[port] for port in sorted(inputs)]

    def _edges_past_arguments(self, child: Call) -> list[Edge]:
        """Return the edges to the inputs of a call by which tensors enter that are no arguments."""
        own, edges = network_of(self._builder._trace).call_id(self._call), list[Edge]()
        ports = self._builder.ports_taken.get(child.index, {})
        for each in self._builder.taken_inside(child):
            made = self._makers.get(-1 if each.value is None else each.value.number)
            if each.read in self._taken:
                made = ~self._taken[each.read], 0
            elif each.source.startswith(own + "/"):
                made = self._item_of_node(own, each.source), 0
            elif made is None:
                inside = self._builder.item_around(each.source, self._call)
                made = None if inside is None else (inside, 0)
            if made is not None and each.read in ports:
                is_alone = network_of(self._builder._trace).nodes[each.read].kind != "placeholder"
                edges.append(Edge(made[0], ports[each.read], made[1] if is_alone else 0))
        return edges

    def _passed_on(self, step: _Step, made: list[Value]) -> dict[int, Origin]:
        """Return the makers of what a step passes on: a tensor may have come from an operation that returned it."""
        numbers = {value.number for value in made}
        found: dict[int, Origin] = {}
        for source in step.sources:
            for value in _values(self._body.results[source]):
                if value.number in numbers and value.number not in found:
                    origins = self._origins(source, value)
                    if origins:
                        found[value.number] = origins[0]
        return found

    def _call_that_left(self, step: _Step) -> int | None:
        """Return the item of the call inside which the tensor was made that a step reads from an attribute."""
        net = network_of(self._builder._trace)
        for source in net.memory_sources.get(f"{net.call_id(self._call)}/{step.op.name}", ()):
            item = self._builder.item_around(source, self._call)
            if item is not None:
                return item
        return None

    def _numbers_of(self, position: int) -> dict[int, int]:
        """Return the number of each tensor of a step's result, with its position there; inputs are one each."""
        if self._item_at[position] < 0:
            return {}
        return {value.number: output for output, value in enumerate(_values(self._body.results[position]))}

    def _edges_into_call(self, step: _Step, child: Call) -> tuple[Edge, ...]:
        """Return the edges into a call: an argument becomes the input that has its value."""
        ports = self._builder._ports[child.index]
        through = self._through_memory(step)
        edges: list[Edge] = []
        free = 0
        for (_, name), source in zip(step.operands, step.sources):
            whole = self._body.results[source]
            values = _values(whole)
            taken = [(value, ports[value.number]) for value in values if value.number in ports]
            if not taken and values:
                taken = [(values[0], free)]
            for value, port in taken:
                free = max(free, port + 1)
                for item in through.get(name, ()):
                    edges.append(Edge(item, port, 0))
                if name not in through:
                    edges += [Edge(item, port, output) for item, output in self._origins(source, value)]
        return tuple(dict.fromkeys([*edges, *self._edges_past_arguments(child)]))

    def _outputs(self, step: _Step) -> tuple[tuple[int, int, int], ...]:
        """Return what the call returned: each tensor with the item that made it."""
        call, texts = self._call, self._builder._texts
        own: dict[int, Origin] = {}
        exact: dict[
            tuple[str, ...], Origin
        ] = {}  # by slot: one tensor may be returned as the result of several operations
        through = self._through_memory(step)
        for (_, name), source in zip(step.operands, step.sources):
            values = _values(self._body.results[source])
            for value in values:
                origins = [(item, 0) for item in through.get(name, ())[-1:]] + self._origins(source, value)
                for origin in origins:
                    own.setdefault(value.number, origin)
                if len(values) == 1 and origins:
                    exact[place_returned(name)] = origins[0]
        named = list(call.outputs.named() if call.outputs is not None else ())
        returned, own = own, self._makers | own
        made = [(slot, exact.get(place_returned(slot)) or own.get(value.number)) for slot, value in named]
        found = [(*origin, texts.add(slot)) for slot, origin in made if origin is not None]
        if not found and named and returned:  # a hook has replaced it
            found = [(*next(iter(returned.values())), texts.add(named[0][0]))]
        return tuple(found)


def _values(item: Item) -> list[Value]:
    if isinstance(item, Value):
        return [item]
    return [value for _, value in leaves(item)] if isinstance(item, Group) else []


# Columns -----------------------------------------------------------------------------------------


def body_columns(bodies: Bodies) -> dict[str, Any]:
    """Return all bodies as columns, as ``BodiesData`` of payload.ts has them."""
    distinct = bodies.distinct
    items = [item for body in distinct for item in body.items]
    edges = [edge for item in items for edge in item.edges]
    inputs = [port for body in distinct for port in body.inputs]
    outputs = [output for body in distinct for output in body.outputs]
    return {
        "root": bodies.of_call[0] if bodies.of_call else NONE,
        "title": integers([body.title for body in distinct]),
        "firstInput": firsts([len(body.inputs) for body in distinct]),
        "firstItem": firsts([len(body.items) for body in distinct]),
        "firstOutput": firsts([len(body.outputs) for body in distinct]),
        "inputName": integers([name for name, _ in inputs]),
        "inputShape": integers([shape for _, shape in inputs]),
        **{
            name: integers([getattr(item, name) for item in items])
            for name in ("kind", "label", "type", "shape", "body", "step", "health")
        },
        "firstEdge": firsts([len(item.edges) for item in items]),
        "from": integers([edge.source for edge in edges]),
        "argument": integers([edge.argument for edge in edges]),
        "output": integers([edge.output for edge in edges]),
        "outputFrom": integers([source for source, _, _ in outputs]),
        "outputOutput": integers([output for _, output, _ in outputs]),
        "outputName": integers([name for _, _, name in outputs]),
    }
