"""The graph of a run as GraphML and as node-link JSON, for networkx, Gephi, yEd, d3 and the like."""

from __future__ import annotations

import json
import re
from pathlib import Path

import networkx as nx

from fxdebug.data.trace import TraceData
from fxdebug.files.write_file import write_text, written_whole
from fxdebug.printable import printable_lines
from fxdebug.query.as_networkx import collapsed, whole_graph
from fxdebug.query.network import network_of

_NOT_IN_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def _chosen_graph(trace: TraceData, depth: int | None, ops: bool) -> nx.MultiDiGraph:
    return whole_graph(trace) if depth is None and ops else collapsed(network_of(trace), depth, ops=ops)


def write_graphml(trace: TraceData, path: Path, *, depth: int | None = None, ops: bool = True) -> Path:
    """Write GraphML; characters that XML cannot hold (in the name of a module) become ``\ufffd``.

    Marks that change the direction of writing become escapes.
    Ids that become equal by this get a ``~`` at the end.
    """
    graph = _chosen_graph(trace, depth, ops)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for id in sorted(graph, key=lambda id: _for_xml(id) != id):  # ids that do not change come first
        name = _for_xml(id)
        while name in taken:
            name += "~"
        names[id] = name
        taken.add(name)
    graph = nx.relabel_nodes(graph, names)
    for _, data in graph.nodes(data=True):
        data.update({key: _for_xml(text) for key, text in data.items() if isinstance(text, str)})
    with written_whole(path) as new:
        nx.write_graphml(graph, new)
    return path


def _for_xml(text: str) -> str:
    return printable_lines(_NOT_IN_XML.sub("\ufffd", text))


def write_json(trace: TraceData, path: Path, *, depth: int | None = None, ops: bool = True) -> Path:
    """Write node-link JSON, which ``networkx.node_link_graph(data, edges="edges")`` reads."""
    data = nx.node_link_data(_chosen_graph(trace, depth, ops), edges="edges")
    return write_text(path, json.dumps(data, indent=1, allow_nan=False))
