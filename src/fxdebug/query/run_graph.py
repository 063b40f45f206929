"""The graph of a run as networkx, as people ask for it: whole, a part, or collapsed at a depth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fxdebug.data.trace import TraceData
from fxdebug.query.as_networkx import collapsed, some_of, to_networkx
from fxdebug.query.names import Place
from fxdebug.query.network import network_of
from fxdebug.query.walk import node_at

if TYPE_CHECKING:
    import networkx as nx


def subgraph(trace: TraceData, places: Iterable[Place]) -> nx.MultiDiGraph:
    """The networkx graph of some nodes and the edges among them."""
    net = network_of(trace)
    return some_of(net, whole_graph(trace), {node_at(trace, place).id for place in places})


def whole_graph(trace: TraceData) -> nx.MultiDiGraph:
    """The trace as networkx, made once."""
    found = trace.cache.get("graph")
    if found is None:
        found = trace.cache["graph"] = to_networkx(network_of(trace))
    return found  # type: ignore[no-any-return]


def graph_at(trace: TraceData, depth: int | None = None, *, ops: bool = True) -> nx.MultiDiGraph:
    """The graph with every call at ``depth`` as one node: see :func:`fxdebug.graph.collapsed`."""
    return collapsed(network_of(trace), depth, ops=ops)
