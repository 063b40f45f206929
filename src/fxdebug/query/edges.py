"""The edges of the network: from the graphs of the calls, and from equal values where a call has no graph."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.graphs import CallGraph, Op, refs_in
from fxdebug.data.values import Group, Item, Value, fast_constructor, leaves

if TYPE_CHECKING:
    from fxdebug.query.network import Network

EdgeKind: TypeAlias = Literal["data", "memory"]


@dataclass(frozen=True)
class Edge:
    """A value that flows from an output of one node to an argument of another.

    ``output`` is empty for a result that is one tensor, and ``[1]`` or ``logits`` for a part of a result. An edge of
    kind ``memory`` says that the target reads memory or an object that the source wrote to.
    """

    source: str
    target: str
    argument: str
    value: Value | None = None
    output: str = ""
    kind: EdgeKind = "data"


_quick_edge = fast_constructor(Edge)


def place_returned(argument: str) -> tuple[str, ...]:
    """Return the keys that lead to a tensor in what a call returns, from an edge's argument or from the value's slot.

    >>> place_returned("[hidden][0]") == place_returned("hidden[0]"), place_returned("result")
    (True, ())
    """
    return () if argument == "result" else tuple(re.findall(r"[^\[\].]+", argument))


class Flow(NamedTuple):
    """A result on its way into an argument: the node that made it, the whole result, and its step's position."""

    argument: str
    source: str
    item: Item
    position: int = -1


class TakenInside(NamedTuple):
    """A tensor from outside of a call that is no argument of it: what reads it inside, and its source.

    It is read from an attribute, or as an argument inside an object, such as a cache.
    """

    read: str
    source: str
    value: Value | None


def taken_past_arguments(net: Network) -> dict[int, list[TakenInside]]:
    """Return what calls take past their arguments, as weights that were given for one call, by index of the call.

    A tensor that a call inside takes is in the list of each call that it comes into.
    """
    found: dict[int, list[TakenInside]] = {}
    for target, sources in [*net.memory_sources.items(), *net.object_sources.items()]:
        read = net.nodes[target]
        for source in dict.fromkeys(sources):
            maker = net.nodes[source]
            around = set[int]()
            at: Call | None = maker.call.parent if maker.kind == "call_module" else maker.call
            while at is not None:
                around.add(at.index)
                at = at.parent
            inside: Call | None = read.call
            while inside is not None and inside.index not in around:
                found.setdefault(inside.index, []).append(TakenInside(target, source, read.value))
                inside = inside.parent
    return found


class Flows:
    """Add the edges of a network."""

    def __init__(self, network: Network) -> None:
        self._net = network
        self._calls = network.trace.calls
        self._fed: dict[int, dict[int, str]] = {}  # call without a graph → number of a value → node that feeds it
        self._operands: dict[int, list[list[tuple[str, str]]]] = {}  # graph → what each of its steps uses
        self._writes: dict[int, list[Value]] = {}  # call → values that it and all calls inside it wrote to

    def connect(self) -> None:
        """Connect every call, callers before the calls inside them."""
        net = self._net
        for call in reversed(self._calls):
            body = net.bodies[call.index]
            own = self._writes.setdefault(call.index, [])
            own += [value for _, value in body.writes] if body is not None else ()
            if call.parent_index is not None and own:
                self._writes.setdefault(call.parent_index, []).extend(own)
        root = self._calls[0]
        self._fed[0] = {value.number: f"{net.call_id(root)}/{slot}" for slot, value in root.inputs.named()}
        for target, sources in net.memory_sources.items():
            for source in dict.fromkeys(sources):
                net.edges.append(_quick_edge(source, target, "", net.nodes[target].value, "", "memory"))
        for call in self._calls:
            if net.steps(call):
                self._connect_steps(call)
            else:
                self._connect_by_values(call)

    # Calls with a graph --------------------------------------------------------------------------

    def _connect_steps(self, call: Call) -> None:
        net = self._net
        body, steps = net.bodies[call.index], net.steps(call)
        assert body is not None
        own, children = net.call_id(call), iter(body.calls)
        ids: dict[str, str] = {}
        positions: dict[str, int] = {}
        called: dict[int, Call] = {}
        for position, step in enumerate(steps):
            positions[step.name] = position
            if step.kind == "call_module":
                called[position] = self._calls[next(children)]
                ids[step.name] = net.call_id(called[position])
            else:
                ids[step.name] = f"{own}/{step.name}"
        writers = self._writers(body.writes, called, ids, steps)
        for position, (step, operands) in enumerate(zip(steps, self._operands_of(body, steps))):
            flows = [
                Flow(argument, ids[name], body.results[positions[name]], positions[name]) for argument, name in operands
            ]
            if step.kind == "call_module":
                arrivals = self._enter(called[position], flows)
            else:
                arrivals = [(ids[step.name], flow, *_value_into(flow, step, body.results[position])) for flow in flows]
            for target, flow, value, output in arrivals:
                net.edges.append(_quick_edge(flow.source, target, flow.argument, value, output))
                if writers and value is not None and value.storage is not None:
                    self._memory(writers.get(value.storage, ()), flow, position, target, value)
        net.edges.append(_quick_edge(ids[steps[-1].name], own, "result", net.nodes[own].value))
        missing = {child.index for child in call.children} - set(body.calls)  # it raised, or ran in a thread
        if missing:
            places = [net.nodes[ids[step.name]] for step in steps if step.kind == "placeholder"]
            feeds = {value.number: place.id for place in places for value in place.values}
            for index in sorted(missing):
                self._enter_by_values(self._calls[index], feeds)

    def _operands_of(self, body: CallGraph, steps: tuple[Op, ...]) -> list[list[tuple[str, str]]]:
        """Return what each step of a graph uses; calls share graphs."""
        assert body.graph is not None
        known = self._operands.get(body.graph)
        if known is None:
            known = self._operands[body.graph] = [list(_operands(step)) for step in steps]
        return known

    def _writers(
        self, writes: Iterable[tuple[int, Value]], called: dict[int, Call], ids: dict[str, str], steps: tuple[Op, ...]
    ) -> dict[int, list[tuple[int, str]]]:
        """Return, by storage, the steps that wrote to it; writes of a child count for the step that called it."""
        writers: dict[int, list[tuple[int, str]]] = {}
        inside = [(position, value) for position, child in called.items() for value in self._writes[child.index]]
        for position, value in sorted([*writes, *inside], key=lambda pair: pair[0]):
            if value.storage is not None:
                writers.setdefault(value.storage, []).append((position, ids[steps[position].name]))
        return writers

    def _memory(self, writers: Sequence[tuple[int, str]], flow: Flow, used: int, target: str, value: Value) -> None:
        """Add an edge from the step that last wrote to a value's memory between its making and this use."""
        before = bisect_left(writers, (used, ""))  # they are in order, and a loop may write there a million times
        if before and flow.position < writers[before - 1][0] and writers[before - 1][1] != target:
            self._net.edges.append(_quick_edge(writers[before - 1][1], target, flow.argument, value, "", "memory"))

    # Into a call ---------------------------------------------------------------------------------

    def _enter(self, child: Call, flows: list[Flow]) -> list[tuple[str, Flow, Value | None, str]]:
        """Return where the arguments of a call arrive: at placeholders of its graph, or at its own node."""
        net = self._net
        own, steps = net.call_id(child), net.steps(child)
        offered: dict[int, list[tuple[Flow, Value, str]]] = {}
        for flow in flows:
            for slot, value in leaves(flow.item):
                offered.setdefault(value.number, []).append((flow, value, slot))
        if not steps:
            self._fed[child.index] = {number: choices[0][0].source for number, choices in offered.items()}
            if self._accounted_by_children(child):
                return []
            return [(own, flow, *_first(flow.item)) for flow in flows]
        arrivals: list[tuple[str, Flow, Value | None, str]] = []
        open_places: list[tuple[str, Op, Value | None]] = []
        used: set[str] = set()
        for step in steps:
            if step.kind != "placeholder":
                continue
            place = f"{own}/{step.name}"
            own_value = net.nodes[place].value
            fitting = [] if own_value is None else offered.get(own_value.number, [])
            arrivals += [(place, flow, own_value, slot) for flow, _, slot in fitting]
            used.update(flow.argument for flow, _, _ in fitting)
            if not fitting:  # none of the values passed is this one: it was written to after it was made
                open_places.append((place, step, own_value))
        for place, step, own_value in open_places:
            match = next((f for f in flows if f.argument not in used and _may_be_placeholder(f, step, own_value)), None)
            if match is not None:
                used.add(match.argument)
                arrivals.append((place, match, own_value, _first(match.item)[1]))
            elif own_value is not None:  # in an object, such as a cache that an earlier step has filled
                source = net.made_before(own_value, child) or net.given_to_model(own_value)
                if source is not None:
                    net.object_sources[place] = [source]
                    net.edges.append(_quick_edge(source, place, "", own_value, "", "memory"))
        arrivals += [(own, flow, *_first(flow.item)) for flow in flows if flow.argument not in used]
        return arrivals

    # Calls without a graph -----------------------------------------------------------------------

    def _connect_by_values(self, call: Call) -> None:
        """Connect the calls inside a call without a graph: equal values tell which result became which argument."""
        net, own = self._net, self._net.call_id(call)
        feeds = dict(self._fed.get(call.index, {}))
        for child in call.children:
            self._enter_by_values(child, feeds)
            for value in child.outputs or ():
                feeds[value.number] = net.call_id(child)
        accounted = call.parent is not None and self._accounted_by_children(call)
        if call.children and (accounted or call.parent is None):
            for slot, value in () if call.outputs is None else call.outputs.named():
                if value.number in feeds:
                    net.edges.append(_quick_edge(feeds[value.number], own, "result", value, slot))
        elif call.parent is None:
            for slot, value in call.inputs.named():
                net.edges.append(_quick_edge(f"{own}/{slot}", own, slot, value))

    def _enter_by_values(self, child: Call, feeds: dict[int, str]) -> None:
        """Connect the arguments of a call with the nodes that are known to have returned them."""
        net = self._net
        flows = []
        for argument, value in child.inputs.named():
            source = feeds.get(value.number) or net.made_before(value, child)
            if source is not None:
                flows.append(Flow(argument, source, value))
        own, body = net.call_id(child), bool(net.steps(child))
        for target, flow, arriving, output in self._enter(child, flows):
            if not (body and target == own):  # an argument inside an object: each read of it has an edge of its own
                net.edges.append(_quick_edge(flow.source, target, flow.argument, arriving, output))

    def _accounted_by_children(self, call: Call) -> bool:
        """Is every value that the call returned a result of the calls inside it, or one of its arguments?"""
        known = {value.number for child in call.children for value in child.outputs or ()}
        known |= {value.number for value in call.inputs}
        return bool(call.children) and all(value.number in known for value in call.outputs or ())


def _operands(step: Op) -> Iterator[tuple[str, str]]:
    """Yield every node that a step uses, as pairs of argument and name."""
    for i, arg in enumerate(step.args):
        for place, name in refs_in(arg):
            yield (place or "result") if step.kind == "output" else f"args[{i}]{place}", name
    for key, arg in step.kwargs.items():
        for place, name in refs_in(arg):
            yield f"{key}{place}", name


def _first(item: Item) -> tuple[Value | None, str]:
    """Return the first tensor of a result and its slot."""
    slot, value = next(leaves(item), ("", None))
    return value, slot


def _value_into(flow: Flow, step: Op, result: Item) -> tuple[Value | None, str]:
    """Return the value that goes into a step, and its output: for ``getitem`` and ``getattr`` only the part taken."""
    if isinstance(flow.item, Value):
        return flow.item, ""
    if (
        isinstance(flow.item, Group)
        and len(step.args) == 2
        and step.target.rpartition(".")[2] in ("getitem", "getattr")
    ):
        key = step.args[1]
        value, _ = _first(result)
        return value, key if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
    return _first(flow.item)[0], ""


def _may_be_placeholder(flow: Flow, step: Op, value: Value | None) -> bool:
    """May this flow enter the placeholder: does it share its memory, or hold a tensor for its name?"""
    passed = [inner for _, inner in leaves(flow.item)]
    if value is None:
        return not passed
    if any(inner.storage is not None and inner.storage == value.storage for inner in passed):
        return True
    return bool(passed) and (flow.argument == step.target or flow.argument.startswith("args"))
