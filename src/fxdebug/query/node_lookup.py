"""Places in the graph of a run: a node, a call, a value or an id, and the node that it stands for."""

from __future__ import annotations

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

    An id is that of a node (``h.0.attn#0/softmax``), of a call (``h.0.attn#0``), or the path of a module
    that was called once. Raises :class:`~fxdebug.errors.NotFound` with the nearest ids.
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
    for key in (place, f"{trace.model}{place}" if place.startswith("#") else place):
        if key in net.nodes:
            return net.nodes[key]
    calls = [call for call in trace.calls if place in names_of_call(call) and call.path]
    if len(calls) == 1:
        return net.nodes[net.call_id(calls[0])]
    if calls:
        raise NotFound(f"{place!r} was called {len(calls)} times: name one call, {calls[0].id} … {calls[-1].id}")
    if place in trace.modules:
        raise NotFound(f"the module {place!r} was never called in this run")
    raise NotFound(f"nothing in this trace is called {place!r}.{nearest(place, net.nodes)}")


def _require_of_trace(place: Node | Call, node: Node | None) -> Node:
    call = place.call if isinstance(place, Node) else place
    if node is None or (node.call.index, node.call.id, node.call.type) != (call.index, call.id, call.type):
        raise NotFound(f"{place!r} belongs to another trace")
    return node
