"""A run as ONNX, for Netron: every call of a module is a function that one can open, with what was measured in it.

It shows what ran and cannot be run: its operators are torch's, in a domain of their own. So any run can be written,
also one of a model that cannot be exported, and one that raised. ``fxdebug.export_onnx`` writes models that run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fxdebug.analyses.measures import derive
from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op
from fxdebug.data.measures import names_in
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.errors import UsageError
from fxdebug.features.onnx.library import (
    ELEMENT_TYPES,
    IR_VERSION,
    OPSET,
    attributes,
    metadata,
    node_proto,
    opsets,
    value_info,
    write_model,
)
from fxdebug.features.shared.programs import protobuf_wire as wire
from fxdebug.features.shared.programs.facts import UniqueNames, constants_of, facts_of_node, shortened
from fxdebug.printable import printable, printable_lines
from fxdebug.query.edges import Edge, place_returned, taken_past_arguments
from fxdebug.query.measures import derived, require_measure
from fxdebug.query.network import Network, Node, network_of

CALLS, OPERATIONS = "fxdebug", "torch"  # the domains of calls and of operations
MOST = 8_000  # nodes in one graph: Netron hangs above (netron#567)
DEEPEST = 95  # functions within functions: onnx allows 100


def write_onnx(
    trace: TraceData,
    path: Path,
    *,
    measures: str | Sequence[str] = (),
    depth: int | None = None,
    whole: bool = False,
) -> Path:
    """Write a run as ONNX: nodes are operations and calls, and each call is a function with its own nodes.

    ``measures`` are written into the nodes beside those that were attached, such as ``flops``. Calls ``depth`` levels
    below the model are closed. Raises ``UsageError`` where one module runs more operations itself than Netron can show
    (``whole=True`` writes them all the same).
    """
    names = names_in(measures) if measures else ()
    derive(trace, *names)
    for name in names:
        require_measure(trace, name)
    return write_model(_Writer(trace, names, depth, whole).model(), path)


@dataclass
class _Body:
    """One graph that is being written: its nodes, and the names that its values have in it."""

    call: Call
    overload: str = ""
    inputs: list[tuple[str, str, Value | None]] = field(default_factory=list)  # id, name, value
    outputs: list[tuple[str, Value]] = field(default_factory=list)
    nodes: list[bytes] = field(default_factory=list)
    infos: list[bytes] = field(default_factory=list)
    results: dict[str, dict[int | None, str]] = field(default_factory=dict)  # node → number of a value → its name
    latest: dict[int, str] = field(default_factory=dict)  # number of a value → its latest name
    taken: set[str] = field(default_factory=set)

    def result(self, source: str, value: Value | None, text: str, *, describe: bool = True) -> str:
        """Return a new name for a result of a node, and note its shape."""
        name = unique = shortened(text)
        number = 1
        while unique in self.taken or not unique:
            number += 1
            unique = f"{name}~{number}"
        self.taken.add(unique)
        self.results.setdefault(source, {})[None if value is None else value.number] = unique
        if value is not None:
            self.latest[value.number] = unique
            if describe and value.dtype in ELEMENT_TYPES:
                self.infos.append(value_info(unique, value))
        return unique

    def sources(self, edge: Edge) -> list[str]:
        """Return the names of what an edge brings: one, or all results of a node; none where it is not in here."""
        if edge.kind != "data" and edge.argument:
            return []  # but for one into the read of an attribute
        found = self.results.get(edge.source)
        if found is None:
            known = None if edge.value is None else self.latest.get(edge.value.number)
            return [] if known is None else [known]
        if len(found) > 1 and edge.value is not None and edge.output and edge.value.number in found:
            return [found[edge.value.number]]
        return list(found.values())


class _Writer:
    """Write the calls of a run, the outermost last."""

    def __init__(
        self, trace: TraceData, asked: Sequence[str] = (), depth: int | None = None, whole: bool = False
    ) -> None:
        self._trace = trace
        self._net: Network = network_of(trace)
        # of what follows from a run only what is asked for: another export may have derived more before
        self._taken = {name: one for name, one in derived(trace).items() if name in asked} | dict(trace.taken)
        self._ids, self._overloads = UniqueNames(1_000), UniqueNames()
        self._depth = DEEPEST if depth is None else min(depth, DEEPEST)
        self._whole = whole
        self._bodies: dict[int, _Body] = {}
        # what lies in objects, such as caches, is no result of a call
        self._taken_inside = {
            index: [each for each in taken if self._net.nodes[each.read].kind != "placeholder"]
            for index, taken in taken_past_arguments(self._net).items()
        }

    def model(self) -> bytes:
        """Return the run: the graph of the root, and one function for each call that has something inside."""
        functions: list[bytes] = []
        calls = self._trace.calls
        for call in reversed(calls[1:]):  # children before their callers
            if self._is_open(call):
                functions.append(wire.data(25, self._function(call)))
        graph = self._root(calls[0])
        parts = [wire.number(1, IR_VERSION), wire.text(2, "fxdebug"), wire.data(7, graph)]
        parts += [opsets(8, {"": OPSET, CALLS: 1, OPERATIONS: 1}), metadata(14, self._about()), *functions]
        return b"".join(parts)

    def _about(self) -> dict[str, str | float]:
        trace = self._trace
        facts: dict[str, str | float] = {"model": printable(trace.model), "started": trace.started}
        facts["duration"] = trace.duration
        if trace.error is not None:
            facts["error"] = printable_lines(str(trace.error))
        return facts | {f"version.{name}": version for name, version in trace.versions.items()}

    def _is_open(self, call: Call) -> bool:
        return call.depth < self._depth and (bool(call.children) or bool(self._net.steps(call)))

    # The graph of the root and the functions -----------------------------------------------------

    def _root(self, call: Call) -> bytes:
        body = _Body(call)
        parts = []
        for id, text, value in self._arguments_of(call):
            name = body.result(id, value, text, describe=False)
            body.inputs.append((id, name, value))
            if value is not None and value.dtype in ELEMENT_TYPES:
                parts.append(wire.data(11, value_info(name, value)))
            else:  # a graph has inputs of known types only
                body.nodes.append(node_proto("input", CALLS, self._ids.name(id), (), [name]))
        self._fill(body)
        self._return(body)
        known = [(name, value) for name, value in body.outputs if value.dtype in ELEMENT_TYPES]
        parts += [wire.data(12, value_info(name, value)) for name, value in known]
        returned = {name for name, _ in known}
        parts += [wire.data(13, info) for info in body.infos if not _is_about(info, returned)]
        parts += [wire.data(1, node) for node in body.nodes]
        return b"".join([wire.text(2, _type_of(call)), *parts, metadata(16, self._facts(call))])

    def _function(self, call: Call) -> bytes:
        body = self._bodies[call.index] = _Body(call, self._overloads.name(call.id))
        body.inputs = [(id, body.result(id, value, text), value) for id, text, value in self._arguments_of(call)]
        self._fill(body)
        self._return(body)
        parts = [wire.text(1, _type_of(call)), wire.texts(4, [name for _, name, _ in body.inputs])]
        parts += [wire.texts(5, [name for name, _ in body.outputs])]
        parts += [wire.data(7, node) for node in body.nodes]
        parts += [opsets(9, {CALLS: 1, OPERATIONS: 1}), wire.text(10, CALLS)]
        parts += [wire.data(12, info) for info in body.infos]
        body.nodes, body.infos = [], []
        return b"".join([*parts, wire.text(13, body.overload), metadata(14, self._facts(call))])

    def _facts(self, call: Call) -> dict[str, str | int | float]:
        return facts_of_node(self._net.nodes[self._net.call_id(call)], self._taken)

    def _arguments_of(self, call: Call) -> Iterator[tuple[str, str, Value | None]]:
        """Yield the placeholders of a call's graph: id, name, value; without a graph, the tensors it was given."""
        own, steps = self._net.call_id(call), self._net.steps(call)
        for step in steps:
            if step.kind == "placeholder":
                id = f"{own}/{step.name}"
                yield id, step.name, self._net.nodes[id].value
        for slot, value in () if steps else call.inputs.named():
            yield f"{own}/{slot}", slot, value
        for read in dict.fromkeys([each.read for each in self._taken_inside.get(call.index, ())]):
            yield read, _name_of_weight(self._net.nodes[read]), self._net.nodes[read].value

    # Nodes ---------------------------------------------------------------------------------------

    def _fill(self, body: _Body) -> None:
        """Write the nodes of a call in execution order: its operations, and a node for each call in it."""
        net, call = self._net, body.call
        steps, own = net.steps(call), net.call_id(call)
        graph = net.bodies[call.index]
        called = [] if graph is None else [self._trace.calls[index] for index in graph.calls]
        self._require_room(call, max(len(steps), len(call.children)))
        children = iter(called)
        for step in steps:
            if step.kind == "call_module":
                self._add_call(body, next(children))
            elif step.kind not in ("placeholder", "output"):
                self._add_operation(body, net.nodes[f"{own}/{step.name}"], step)
        known = {child.index for child in called}
        for child in call.children:
            if child.index not in known:  # the call has no graph, or the child raised or ran in a thread
                self._add_call(body, child)

    def _require_room(self, call: Call, nodes: int) -> None:
        if nodes > MOST and not self._whole:
            raise UsageError(
                f"{call.path or call.type} runs {nodes} operations itself, and Netron hangs above {MOST} in one graph: "
                "use to='tensorboard' or '.graphml', or write all of them with whole=True"
            )

    def _add_operation(self, body: _Body, node: Node, step: Op) -> None:
        inputs = [name for edge in self._net.into.get(node.id, ()) for name in body.sources(edge)]
        if isinstance(node.item, Value):
            outputs = [body.result(node.id, node.item, step.name)]
        else:
            tensors: list[tuple[str, Value | None]] = [*leaves(node.item)] or [("", None)]
            outputs = [body.result(node.id, value, f"{step.name}{_after(slot)}") for slot, value in tensors]
        rest = attributes(constants_of(node)) + metadata(9, facts_of_node(node, self._taken))
        operation = step.op if step.op.isprintable() and step.op else printable(step.op) or step.kind
        body.nodes.append(node_proto(operation, OPERATIONS, self._ids.name(node.id), inputs, outputs, rest=rest))

    def _add_call(self, body: _Body, child: Call) -> None:
        """Write a call: its inputs in the order of its function's, its results under names of this graph."""
        id = self._net.call_id(child)
        inside = self._bodies.pop(child.index, None)
        if inside is not None:
            inputs = [self._argument(body, one, value) for one, _, value in inside.inputs]
        else:
            given = self._given_to_closed(body, child)
            inputs = [given.get(value.number) or body.latest.get(value.number, "") for value in child.inputs]
            taken = dict.fromkeys([each.read for each in self._taken_inside.get(child.index, ())])
            inputs += [self._argument(body, read, self._net.nodes[read].value) for read in taken]
        text = child.path.rpartition(".")[2] + (f"#{child.number}" if child.number else "")
        tensors: list[tuple[str, Value | None]] = [*leaves(self._net.nodes[id].item)]
        if inside is None and not tensors:
            tensors = [("", None)]
        outputs = [body.result(id, value, f"{text or 'call'}{_after(slot)}") for slot, value in tensors]
        rest = metadata(9, self._facts(child) | self._hidden(child, inside))
        overload = "" if inside is None else inside.overload
        body.nodes.append(
            node_proto(_type_of(child), CALLS, self._ids.name(id), inputs, outputs, overload=overload, rest=rest)
        )

    def _hidden(self, child: Call, inside: _Body | None) -> dict[str, str | int | float]:
        """Return how many calls in a closed call are not written."""
        return {"closed": f"{len(child.children)} calls inside"} if inside is None and child.children else {}

    def _given_to_closed(self, body: _Body, child: Call) -> dict[int, str]:
        """Return the names of what flows into a call that is written closed, by numbers of values."""
        id = self._net.call_id(child)
        places = [id, *[f"{id}/{step.name}" for step in self._net.steps(child) if step.kind == "placeholder"]]
        edges = [edge for place in places for edge in self._net.into.get(place, ()) if edge.value is not None]
        return {
            edge.value.number: name
            for edge in reversed(edges)
            if edge.value is not None and not edge.source.startswith(f"{id}/")
            for name in body.sources(edge)[:1]
        }

    def _argument(self, body: _Body, id: str, value: Value | None) -> str:
        """Return the name of an argument of a call, empty where nothing of this graph feeds it."""
        names = [name for edge in self._net.into.get(id, ()) for name in body.sources(edge)]
        latest = "" if value is None else body.latest.get(value.number, "")
        return latest if latest in names or not names else names[0]

    # Results -------------------------------------------------------------------------------------

    def _return(self, body: _Body) -> None:
        """Note name and value of every tensor that a call returned.

        One that is no result in this graph (it is an argument, comes twice or from elsewhere) comes out of a node
        ``output``, since a name can be a result of a function once.
        """
        own, steps = self._net.call_id(body.call), self._net.steps(body.call)
        last = next((step for step in steps if step.kind == "output"), None)
        returned: dict[int | tuple[str, ...], str] = {}  # by number of a value, and by its place
        for edge in () if last is None else self._net.into.get(f"{own}/{last.name}", ()):
            names = body.sources(edge)
            if edge.value is not None and names:
                returned[edge.value.number] = returned[place_returned(edge.argument)] = names[0]
        taken = {name for _, name, _ in body.inputs}
        for slot, value in () if body.call.outputs is None else body.call.outputs.named():
            source = returned.get(place_returned(slot)) or returned.get(value.number) or body.latest.get(value.number)
            if source is None or source in taken:
                name = body.result(f"{own}/output", value, f"output{_after(slot)}")
                given = [] if source is None else [source]
                body.nodes.append(node_proto("output", CALLS, self._ids.name(f"{own}/{name} out"), given, [name]))
                source = name
            taken.add(source)
            body.outputs.append((source, value))


def _name_of_weight(read: Node) -> str:
    """Return the name that a weight has in a call: that of the module below it, and its own."""
    return ".".join([part for part in (read.call.path.rpartition(".")[2], read.target) if part])


def _is_about(info: bytes, names: set[str]) -> bool:
    """Is a description that of one of these values? Those of a graph's outputs stand with the outputs."""
    return bool(names) and any(info.startswith(wire.text(1, name)) for name in names)


def _type_of(call: Call) -> str:
    return shortened(call.type) or "module"


def _after(slot: str) -> str:
    """Return a slot as it stands behind a name: ``[0]``, ``.logits``."""
    return f".{slot}" if slot and not slot.startswith("[") else slot
