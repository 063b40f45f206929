"""Asking a trace: which calls, which operations, what leads where.

One language everywhere: globs for names (``*`` also matches dots), ``"2,*,384"`` for shapes, and a
predicate that is a function or a line such as ``"absmax > 100 or nan > 0"`` about the statistics of
what came out. Answers are plain lists in execution order. A name without wildcards that the trace does
not know is an error that offers the nearest ones.
"""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from fxdebug.data.calls import Call
from fxdebug.data.graphs import NODE_KINDS, STATUSES, NodeKind, Status
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.graph import Edge, Network, Node, collapsed, shortest_ways, some_of, to_networkx
from fxdebug.predicate import Shape, about_values

if TYPE_CHECKING:
    import networkx as nx

_MAGIC = frozenset("*?[")

_T = TypeVar("_T", Call, Node)
Where: TypeAlias = Callable[[_T], object] | str | None  # a function of a call or node, or a line about its tensors
Place: TypeAlias = Node | Call | Value | str


# Finding -----------------------------------------------------------------------------------------


def find(
    trace: TraceData,
    path: str | None = None,
    *,
    type: str | None = None,
    dtype: str | None = None,
    shape: Shape = None,
    status: Status | None = None,
    source: str | None = None,
    where: Where[Call] = None,
) -> list[Call]:
    """Calls in execution order, narrowed down by every argument that is given.

    ``path``: a glob over module paths and their aliases. ``type``: over class names. ``dtype`` and
    ``shape``: of a tensor it returned. ``status``: ``verified``, ``recorded`` or ``opaque``. ``source``:
    ``model.py``, ``model.py:12`` or a glob. ``where``: a function of the call, or a line about the statistics
    of a tensor it returned. ``dtype``, ``shape`` and a line must hold for one and the same tensor.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0, 2.0]))
    >>> [call.path for call in find(trace, type="ReLU")], [call.path for call in find(trace, where="min >= 0")]
    (['1'], ['', '1'])
    """
    calls = list(trace.calls)
    if path is not None:
        calls = [call for call in calls if any(fnmatch.fnmatchcase(name, path) for name in _names(call))]
        if not calls and not _MAGIC & set(path):
            _refuse_unknown("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        calls = _by_name(calls, "module type", type, lambda call: call.type, set(trace.modules.values()))
    if status is not None:
        _has_graphs(trace, "status")
        _known("status", status, STATUSES)
        calls = [call for call in calls if call.status == status]
    _refuse_unknown_file(source, (call.source for call in trace.calls))
    test = _test(trace, dtype, shape, source, where)
    return [call for call in calls if test(call, tuple(call.outputs or ()), call.source)]


def ops(
    trace: TraceData,
    op: str | None = None,
    *,
    path: str | None = None,
    type: str | None = None,
    kind: NodeKind | None = None,
    dtype: str | None = None,
    shape: Shape = None,
    status: Status | None = None,
    source: str | None = None,
    where: Where[Node] = None,
) -> list[Node]:
    """Operations in execution order: functions and methods that ran, narrowed down as in :func:`find`.

    ``op``: a glob over their names (``softmax``, ``mat*``). ``path`` and ``type``: of the module whose
    body they are in. ``kind``: one of torch.fx's, ``call_function`` or ``call_method`` when not given.
    """
    _has_graphs(trace, "operations")
    nodes = list(network(trace).nodes.values())
    if kind is None:
        nodes = [node for node in nodes if node.kind in ("call_function", "call_method")]
    else:
        _known("kind", kind, NODE_KINDS)
        nodes = [node for node in nodes if node.kind == kind]
    if op is not None:
        nodes = _by_name(nodes, "operation", op, lambda node: node.op)
    if path is not None:
        nodes = [node for node in nodes if any(fnmatch.fnmatchcase(name, path) for name in _names(node.call))]
        if not nodes and not _MAGIC & set(path):
            _refuse_unknown("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        kinds = set(trace.modules.values()) | {call.type for call in trace.calls}
        nodes = _by_name(nodes, "module type", type, lambda node: node.call.type, kinds)
    if status is not None:
        _known("status", status, STATUSES)
        nodes = [node for node in nodes if node.status == status]
    _refuse_unknown_file(source, (node.source for node in network(trace).nodes.values()))
    test = _test(trace, dtype, shape, source, where)
    return [node for node in nodes if test(node, node.values, node.source)]


def _names(call: Call) -> tuple[str, ...]:
    return call.aliases or (call.path,)


def _by_name(
    things: list[_T], what: str, pattern: str, name: Callable[[_T], str], known: set[str] | None = None
) -> list[_T]:
    found = [thing for thing in things if fnmatch.fnmatchcase(name(thing), pattern)]
    if not found and not _MAGIC & set(pattern):
        _refuse_unknown(what, pattern, (known or set()) | {name(thing) for thing in things})
    return found


def _test(
    trace: TraceData, dtype: str | None, shape: Shape, source: str | None, where: Where[_T]
) -> Callable[[_T, tuple[Value, ...], str | None], bool]:
    """Everything but names: of the thing itself, its tensors and its line."""
    of_values = None
    if dtype is not None or shape is not None or isinstance(where, str):
        seen = frozenset(value.dtype for value in trace.values)
        of_values = about_values(dtype, shape, where if isinstance(where, str) else None, seen)
    of_thing = where if callable(where) else None
    lines = None if source is None else _source_pattern(source)

    def test(thing: _T, values: tuple[Value, ...], line: str | None) -> bool:
        if lines is not None and not lines(line or ""):
            return False
        if of_values is not None and not any(of_values(value) for value in values):
            return False
        return of_thing is None or bool(of_thing(thing))

    return test


def _source_pattern(source: str) -> Callable[[str], bool]:
    """``model.py``, ``model.py:12`` or a glob, with as many folders before it as one likes."""
    name, colon, line = source.replace("\\", "/").rpartition("/")[2].partition(":")
    if colon and not (line.isdigit() or _MAGIC & set(line)):
        raise UsageError(f"source {source!r}: after {name}: stands the number of a line, or a pattern such as 1*")
    pattern = source if colon else f"{source}:*"
    return lambda line: fnmatch.fnmatchcase(line, pattern) or fnmatch.fnmatchcase(line, f"*[/\\\\]{pattern}")


def _refuse_unknown_file(source: str | None, lines: Iterable[str | None]) -> None:
    """Raise for a file without wildcards of which no line is known; a line where nothing happened is no mistake."""
    name = "" if source is None else source.replace("\\", "/").rpartition("/")[2].partition(":")[0]
    if name and not _MAGIC & set(name):
        files = {line.replace("\\", "/").rpartition("/")[2].partition(":")[0] for line in lines if line}
        _refuse_unknown("source file", name, files)


def _has_graphs(trace: TraceData, what: str) -> None:
    if trace.explain is None:
        raise UsageError(f"this run has no {what}: it was made with graph=False")


def _known(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UsageError(f"{what}={name!r}: use one of {', '.join(map(repr, known))}")


def _refuse_unknown(what: str, name: str, known: set[str]) -> None:
    """Raise unless the name exists (a registered module that was never called is known, and empty)."""
    if name not in known:
        shown = sorted(known - {""})
        some = ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "")
        raise NotFound(f"no {what} {name!r} in this trace of {len(known)}: {some}.{nearest(name, shown)}")


# Walking -----------------------------------------------------------------------------------------


def network(trace: TraceData) -> Network:
    """The nodes and edges of a trace, made once."""
    found = trace.cache.get("network")
    if found is None:  # it has a shallow copy: what the trace keeps may not lead back to the trace
        found = trace.cache["network"] = Network(replace(trace))
    assert isinstance(found, Network)
    return found


def node(trace: TraceData, place: Place) -> Node:
    """The node for a node, a call, a value (the step that made it, or the input it is) or an id.

    An id is that of a node (``h.0.attn#0/softmax``), of a call (``h.0.attn#0``), or the path of a module
    that was called once. Raises :class:`~fxdebug.errors.NotFound` with the nearest ids.
    """
    net = network(trace)
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
    calls = [call for call in trace.calls if place in _names(call) and call.path]
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
    net = network(trace)
    return _reached(net, node(trace, place), lambda id: (e.source for e in net.into.get(id, ())), steps)


def downstream(trace: TraceData, place: Place, *, steps: int | None = None) -> list[Node]:
    """Every node that depends on ``place``, in execution order; at most ``steps`` edges away."""
    net = network(trace)
    return _reached(net, node(trace, place), lambda id: (e.target for e in net.out_of.get(id, ())), steps)


def producers(trace: TraceData, place: Place) -> list[Node]:
    """The nodes whose results ``place`` is given; for a call, those whose results are its arguments."""
    net, asked = network(trace), node(trace, place)
    entrances = [asked.id]
    if asked.kind == "call_module":
        inside = [n for n in net.nodes.values() if n.kind == "placeholder" and n.call is asked.call]
        entrances = [n.id for n in inside] or entrances
    found = {edge.source for id in entrances for edge in net.into.get(id, ())}
    return sorted((net.nodes[id] for id in found), key=lambda n: n.position)


def consumers(trace: TraceData, place: Place) -> list[Node]:
    """The nodes that are given the result of ``place``."""
    return downstream(trace, place, steps=1)


def between(trace: TraceData, start: Place, end: Place) -> list[Node]:
    """Every node on some way from ``start`` to ``end``, both included; empty if there is no way."""
    first, last = node(trace, start), node(trace, end)
    after = {n.id for n in downstream(trace, first)} | {first.id}
    return [n for n in [*upstream(trace, last), last] if n.id in after] if last.id in after else []


def paths(trace: TraceData, start: Place, end: Place, *, limit: int = 100) -> list[list[Node]]:
    """Ways from ``start`` to ``end``, the shortest first, at most ``limit`` of them."""
    net = network(trace)
    inside = {n.id for n in between(trace, start, end)}
    ways = shortest_ways(net, inside, node(trace, start).id, node(trace, end).id)
    return [[net.nodes[id] for id in way] for way in islice(ways, limit if limit > 0 else None)]


def subgraph(trace: TraceData, places: Iterable[Place]) -> nx.MultiDiGraph:
    """The networkx graph of some nodes and the edges among them."""
    net = network(trace)
    return some_of(net, whole_graph(trace), {node(trace, place).id for place in places})


def whole_graph(trace: TraceData) -> nx.MultiDiGraph:
    """The trace as networkx, made once."""
    found = trace.cache.get("graph")
    if found is None:
        found = trace.cache["graph"] = to_networkx(network(trace))
    return found  # type: ignore[no-any-return]


def graph_at(trace: TraceData, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """The graph with every call at ``depth`` as one node: see :func:`fxdebug.graph.collapsed`."""
    return collapsed(network(trace), depth, ops=ops)


def pattern(trace: TraceData, names: Sequence[str], *, within: int = 4) -> list[tuple[Node, ...]]:
    """Where operations of these names follow one another along the flow of data.

    Up to ``within`` other steps may lie between two of them (a scaling, a mask, a dropout). Each match
    has one node per name; matches begin at different nodes, the nearest continuation counts.

    For attention: ``pattern(trace, ["matmul", "softmax", "matmul"])``.
    """
    if not names:
        raise UsageError("a pattern needs at least one operation")
    net = network(trace)
    matches = []
    begins, *_ = [ops(trace, name) for name in names]  # an unknown name is an error wherever it stands
    for start in begins:
        match = [start]
        for name in names[1:]:
            following = _nearest(net, match[-1], name, within)
            if following is None:
                break
            match.append(following)
        if len(match) == len(names):
            matches.append(tuple(match))
    return matches


def _nearest(net: Network, start: Node, name: str, within: int) -> Node | None:
    """The nearest operation of that name downstream, over at most ``within`` others.

    A parameter that is read, a placeholder or an output counts for nothing on the way.
    """
    pending = deque([(start.id, 0)])
    seen = {start.id}
    while pending:
        id, distance = pending.popleft()
        for edge in net.out_of.get(id, ()):
            following = net.nodes[edge.target]
            if following.id in seen:
                continue
            seen.add(following.id)
            operation = following.kind in ("call_function", "call_method")
            if operation and fnmatch.fnmatchcase(following.op, name):
                return following
            if distance + operation <= within:
                pending.append((following.id, distance + operation))
    return None


def _reached(net: Network, start: Node, neighbours: Callable[[str], Iterable[str]], steps: int | None) -> list[Node]:
    seen = {start.id}
    edge = [start.id]
    while edge and (steps is None or steps > 0):
        edge = [id for id in dict.fromkeys(n for id in edge for n in neighbours(id)) if id not in seen]
        seen.update(edge)
        steps = None if steps is None else steps - 1
    return sorted((net.nodes[id] for id in seen - {start.id}), key=lambda n: n.position)


__all__ = [
    "Edge", "Node", "between", "consumers", "downstream", "find", "network", "node", "ops", "paths", "pattern",
    "producers", "subgraph", "upstream", "whole_graph",
]  # fmt: skip
