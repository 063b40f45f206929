"""The graph of a run as GraphML, GEXF and node-link JSON, for networkx, Gephi, yEd, d3 and the like.

The XML is written line by line: networkx builds all of it first, which takes a minute for 100,000 operations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import networkx as nx

from fxdebug.data.trace import TraceData
from fxdebug.files.write_file import written_whole
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
    return _write_lines(path, _graphml(_chosen_graph(trace, depth, ops)))


def write_gexf(trace: TraceData, path: Path, *, depth: int | None = None, ops: bool = True) -> Path:
    """Write GEXF 1.2 for Gephi, with names as in :func:`write_graphml`; a label is an operation or a class."""
    return _write_lines(path, _gexf(_chosen_graph(trace, depth, ops)))


def _write_lines(path: Path, lines: Iterable[str]) -> Path:
    with written_whole(path) as new, new.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def _graphml(graph: nx.MultiDiGraph) -> Iterator[str]:
    of_nodes, of_edges = (
        _types(data for _, data in graph.nodes(data=True)),
        _types(d for *_, d in graph.edges(data=True)),
    )
    tables = {"graph": _types([graph.graph]), "node": of_nodes, "edge": of_edges}
    keys: dict[tuple[str, str], str] = {}
    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    for of, types in tables.items():
        for name, kind in types.items():
            key = keys[of, name] = f"d{len(keys)}"
            yield f'  <key id="{key}" for="{of}" attr.name={_quoted(name)} attr.type="{_TYPES[kind]}"/>'

    def data_of(of: str) -> _Attributes:
        return _Attributes({name: f'<data key="{keys[of, name]}">' for name in tables[of]}, "</data>")

    names, of_node, of_edge = _quoted_names(graph), data_of("node"), data_of("edge")
    yield f'  <graph edgedefault="directed">{data_of("graph").text(graph.graph)}'
    for id, data in graph.nodes(data=True):
        yield f"    <node id={names[id]}>{of_node.text(data)}</node>"
    for source, target, key, data in graph.edges(keys=True, data=True):
        yield f'    <edge source={names[source]} target={names[target]} id="{key}">{of_edge.text(data)}</edge>'
    yield from ("  </graph>", "</graphml>")


def _gexf(graph: nx.MultiDiGraph) -> Iterator[str]:
    tables = {
        "node": _types(data for _, data in graph.nodes(data=True)),
        "edge": _types(data for *_, data in graph.edges(data=True)),
    }
    keys = {(of, name): str(number) for of, types in tables.items() for number, name in enumerate(types)}
    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">'
    yield f"  <meta><creator>fxdebug</creator><description>{_escaped(graph.graph['model'])}</description></meta>"
    yield '  <graph defaultedgetype="directed" mode="static">'
    for of, types in tables.items():
        rows = [
            f'<attribute id="{keys[of, name]}" title={_quoted(name)} type="{_TYPES[kind]}"/>'
            for name, kind in types.items()
        ]
        yield f'    <attributes class="{of}" mode="static">{"".join(rows)}</attributes>'

    def values_of(of: str) -> _Attributes:
        return _Attributes({name: f'<attvalue for="{keys[of, name]}" value="' for name in tables[of]}, '"/>')

    names, of_node, of_edge = _quoted_names(graph), values_of("node"), values_of("edge")
    yield "    <nodes>"
    for id, data in graph.nodes(data=True):
        values = of_node.text(data)
        yield f"      <node id={names[id]} label={_quoted(str(data['op']))}><attvalues>{values}</attvalues></node>"
    yield "    </nodes><edges>"
    for number, (source, target, data) in enumerate(graph.edges(data=True)):
        ends = f'id="{number}" source={names[source]} target={names[target]}'
        yield f"      <edge {ends}><attvalues>{of_edge.text(data)}</attvalues></edge>"
    yield from ("    </edges>", "  </graph>", "</gexf>")


class _Attributes:
    """The attributes of nodes or of edges as XML; a graph of 100,000 nodes has millions, of few different texts."""

    def __init__(self, begins: Mapping[str, str], end: str) -> None:
        self._begins, self._end = begins, end
        self._known: dict[tuple[str, str], str] = {}  # name and text of an attribute → both as XML

    def text(self, data: Mapping[str, object]) -> str:
        """Return the attributes of one node or edge, in their order."""
        begins, end = self._begins, self._end
        parts = []
        for name, value in data.items():
            if isinstance(value, str):
                part = self._known.get((name, value))
                if part is None:
                    part = self._known[name, value] = f"{begins[name]}{_in_quotes(value)}{end}"
            else:  # a number, which has no letter that XML would read
                part = f"{begins[name]}{value}{end}"
            parts.append(part)
        return "".join(parts)


def _types(rows: Iterable[Mapping[str, object]]) -> dict[str, type]:
    """Return the type of every attribute: that of all its numbers, or text."""
    types: dict[str, type] = {}
    for row in rows:
        for name, value in row.items():
            kind, known = type(value), types.get(name)
            if known is kind:
                continue
            types[name] = kind if known is None else float if {known, kind} == {int, float} else str
    return {name: kind if kind in _TYPES else str for name, kind in types.items()}


_TYPES = {str: "string", int: "long", float: "double", bool: "boolean"}


def _names(graph: nx.MultiDiGraph) -> dict[str, str]:
    """Return the ids as XML holds them, each different from all others."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for id in sorted(graph, key=lambda id: _for_xml(id) != id):  # ids that do not change come first
        name = _for_xml(id)
        while name in taken:
            name += "~"
        names[id] = name
        taken.add(name)
    return names


def _escaped(text: str) -> str:
    return escape(_for_xml(text))


def _quoted_names(graph: nx.MultiDiGraph) -> dict[str, str]:
    return {id: _quoted(name) for id, name in _names(graph).items()}


def _quoted(text: str) -> str:
    return f'"{_in_quotes(text)}"'


def _in_quotes(text: str) -> str:
    return escape(_for_xml(text), _IN_QUOTES)


_IN_QUOTES = {'"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}


def _for_xml(text: str) -> str:
    if text.isprintable():
        return text
    return printable_lines(_NOT_IN_XML.sub("\ufffd", text))


def write_json(trace: TraceData, path: Path, *, depth: int | None = None, ops: bool = True) -> Path:
    """Write node-link JSON, which ``networkx.node_link_graph(data, edges="edges")`` reads: a node or an edge a line."""
    return _write_lines(path, _json(nx.node_link_data(_chosen_graph(trace, depth, ops), edges="edges")))


def _json(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines of JSON; each is encoded alone: Python's encoder in C does not break lines."""
    encode = json.JSONEncoder(allow_nan=False).encode
    rows = {name: data[name] for name in ("nodes", "edges")}
    facts = [f"{encode(name)}: {encode(fact)}" for name, fact in data.items() if name not in rows]
    yield "{" + ", ".join(facts) + ","
    for name, found in rows.items():
        yield f"{encode(name)}: ["
        yield from (f" {encode(row)}," for row in found[:-1])
        yield from (f" {encode(row)}" for row in found[-1:])
        yield "]," if name == "nodes" else "]}"
