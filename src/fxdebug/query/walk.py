"""Walk the graph of a run: upstream, downstream, producers, consumers, paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, nearest
from fxdebug.query.as_networkx import shortest_ways
from fxdebug.query.names import Place, names
from fxdebug.query.network import Network, Node, network_of


def node_at(trace: TraceData, place: Place) -> Node:
    """The node for a node, a call, a value (the step that made it, or the input it is) or an id.

    An id is that of a node (``h.0.attn#0/softmax``), of a call (``h.0.attn#0``), or the path of a module
    that was called once. Raises :class:`~fxdebug.errors.NotFound` with the nearest ids.
    """
    net = network_of(trace)
    if isinstance(place, Node):
        return _same(place, net.nodes.get(place.id))
    if isinstance(place, Call):
        return _same(place, net.nodes.get(net.call_id(place)))
    if isinstance(place, Value):
        id = net.made.get(place.number) or net.given.get(place.number)
        if place not in trace.values[place.number : place.number + 1]:
            raise NotFound(f"{place!r} is not of this trace")
        if id is None:
            raise NotFound(f"no step of this trace made value {place.number} ({place.label}): it came from outside")
        return net.nodes[id]
    for key in (place, f"{trace.model}{place}" if place.startswith("#") else place):
        if key in net.nodes:
            return net.nodes[key]
    calls = [call for call in trace.calls if place in names(call) and call.path]
    if len(calls) == 1:
        return net.nodes[net.call_id(calls[0])]
    if calls:
        raise NotFound(f"{place!r} was called {len(calls)} times: say {calls[0].id} … {calls[-1].id}")
    if place in trace.modules:
        raise NotFound(f"the module {place!r} was never called in this run")
    raise NotFound(f"nothing in this trace is called {place!r}.{nearest(place, net.nodes)}")


def _same(asked: Node | Call, found: Node | None) -> Node:
    call = asked.call if isinstance(asked, Node) else asked
    if found is None or (found.call.index, found.call.id, found.call.type) != (call.index, call.id, call.type):
        raise NotFound(f"{asked!r} is not of this trace")
    return found


def upstream(trace: TraceData, place: Place, *, steps: int | None = None) -> list[Node]:
    """Every node that ``place`` depends on, in execution order; at most ``steps`` edges away."""
    net = network_of(trace)
    return _reached(net, node_at(trace, place), lambda id: (e.source for e in net.into.get(id, ())), steps)


def downstream(trace: TraceData, place: Place, *, steps: int | None = None) -> list[Node]:
    """Every node that depends on ``place``, in execution order; at most ``steps`` edges away."""
    net = network_of(trace)
    return _reached(net, node_at(trace, place), lambda id: (e.target for e in net.out_of.get(id, ())), steps)


def producers(trace: TraceData, place: Place) -> list[Node]:
    """The nodes whose results ``place`` is given; for a call, those whose results are its arguments."""
    net, asked = network_of(trace), node_at(trace, place)
    entrances = [asked.id]
    if asked.kind == "call_module":
        inside = [n for n in net.nodes.values() if n.kind == "placeholder" and n.call is asked.call]
        entrances = [n.id for n in inside] or entrances
    found = {edge.source for id in entrances for edge in net.into.get(id, ())}
    return sorted((net.nodes[id] for id in found), key=lambda n: n.position)


def consumers(trace: TraceData, place: Place) -> list[Node]:
    """The nodes that are given the result of ``place``."""
    return downstream(trace, place, steps=1)


def nodes_between(trace: TraceData, start: Place, end: Place) -> list[Node]:
    """Every node on some way from ``start`` to ``end``, both included; empty if there is no way."""
    first, last = node_at(trace, start), node_at(trace, end)
    after = {n.id for n in downstream(trace, first)} | {first.id}
    return [n for n in [*upstream(trace, last), last] if n.id in after] if last.id in after else []


def paths_between(trace: TraceData, start: Place, end: Place, *, limit: int = 100) -> list[list[Node]]:
    """Ways from ``start`` to ``end``, the shortest first, at most ``limit`` of them."""
    net = network_of(trace)
    inside = {n.id for n in nodes_between(trace, start, end)}
    ways = shortest_ways(net, inside, node_at(trace, start).id, node_at(trace, end).id)
    return [[net.nodes[id] for id in way] for way in islice(ways, limit if limit > 0 else None)]


def _reached(net: Network, start: Node, neighbours: Callable[[str], Iterable[str]], steps: int | None) -> list[Node]:
    seen = {start.id}
    edge = [start.id]
    while edge and (steps is None or steps > 0):
        edge = [id for id in dict.fromkeys(n for id in edge for n in neighbours(id)) if id not in seen]
        seen.update(edge)
        steps = None if steps is None else steps - 1
    return sorted((net.nodes[id] for id in seen - {start.id}), key=lambda n: n.position)
