"""Find the node in the graph of a run that belongs to a node, a call, a value or an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, nearest
from fxdebug.query.names import names_of_call
from fxdebug.query.network import Node, network_of

Place: TypeAlias = Node | Call | Value | str


def node_at(trace: TraceData, place: Place) -> Node:
    """Return the node of a place: a node, a call, a value (then its producer, or the input that it is) or an id.

    An id is that of a node (``h.0.attn#0/softmax``), of a call (``h.0.attn#0``), the path of a module that was called
    once, or the name of a tensor that the run was given or returned (``logits``, ``past_key_values.layers[0].keys``).
    Raises :class:`~fxdebug.errors.NotFound` with the nearest ids.
    """
    net = network_of(trace)
    if isinstance(place, Node):
        return _require_of_trace(place, net.nodes.get(place.id))
    if isinstance(place, Call):
        return _require_of_trace(place, net.nodes.get(net.call_id(place)))
    if isinstance(place, Value):
        id = net.producer_of.get(place.number) or net.entry_of.get(place.number)
        if place not in trace.values[place.number : place.number + 1]:
            raise NotFound(f"{place!r} belongs to another trace")
        if id is None:
            raise NotFound(
                f"no step of this trace made value {place.number} ({place.label}): it existed before the run"
            )
        return net.nodes[id]
    found = node_named(trace, place)
    if found is not None:
        return found
    if place in trace.modules:
        raise NotFound(f"the module {place!r} was never called in this run")
    known = [*net.nodes, *_results(trace)]
    raise NotFound(f"nothing in this trace is called {place!r}.{nearest(place, known)}")


def node_named(trace: TraceData, name: str) -> Node | None:
    """Return the node with an id or a name, as :func:`node_at` does; ``None`` if there is none.

    Raises :class:`~fxdebug.errors.NotFound` for a module that was called several times.
    """
    net = network_of(trace)
    for key in (name, f"{trace.model}{name}" if name.startswith("#") else name):
        if key in net.nodes:
            return net.nodes[key]
    calls = (calls_named(trace, name) or _by_other_id(trace, name)) if name else []
    if len(calls) == 1:
        return net.nodes[net.call_id(calls[0])]
    if calls:
        raise NotFound(_several(name, calls))
    results = _results(trace)
    if name in results:
        return node_at(trace, results[name])
    argument = net.nodes.get(f"{net.call_id(trace.root)}/{name}")  # of the model, by the name in its forward
    return argument if argument is not None and argument.kind == "placeholder" else None


def call_at(trace: TraceData, name: str) -> Call:
    """Return the call with an id (``h.0.attn#0``), or that of a module that was called once, by its path.

    Raises :class:`~fxdebug.errors.NotFound` with the nearest names.
    """
    ids = (name, name.removeprefix(trace.model) if name.startswith(f"{trace.model}#") else name)
    calls = [call for call in trace.calls if call.id in ids] or calls_named(trace, name) or _by_other_id(trace, name)
    if len(calls) > 1:
        raise NotFound(_several(name, calls))
    if not calls and name == trace.model:
        return trace.root
    if not calls and name in trace.modules:
        raise NotFound(f"the module {name!r} was never called in this run")
    if not calls:
        known = {*trace.modules, *(call.path for call in trace.calls), *(call.id for call in trace.calls)}
        raise NotFound(f"no call in this trace is named {name!r}.{nearest(name, known)}")
    return calls[0]


def calls_named(trace: TraceData, path: str) -> list[Call]:
    """Return the calls of the module at a path; for the empty path that of the root, whatever is called inside it."""
    return [call for call in trace.calls if path in names_of_call(call)] if path else [trace.root]


def _by_other_id(trace: TraceData, name: str) -> list[Call]:
    """Return the call that an id with another path of its module names: ``head#1``, where it is also ``embed``."""
    path, mark, number = name.rpartition("#")
    return [call for call in calls_named(trace, path) if str(call.number) == number] if mark and path else []


def _several(path: str, calls: Sequence[Call]) -> str:
    return f"{path!r} was called {len(calls)} times: name one call, {calls[0].id} … {calls[-1].id}"


def _results(trace: TraceData) -> dict[str, Value]:
    """Return the tensors that the run was given and those that it returned, by name; a result hides an argument."""
    outputs = () if trace.root.outputs is None else trace.root.outputs.named()
    return {slot: value for slot, value in (*trace.root.inputs.named(), *outputs) if slot}


def _require_of_trace(place: Node | Call, node: Node | None) -> Node:
    call = place.call if isinstance(place, Node) else place
    if node is None or (node.call.index, node.call.id, node.call.type) != (call.index, call.id, call.type):
        raise NotFound(f"{place!r} belongs to another trace")
    return node
