"""A run for Model Explorer: calls as layers within layers, operations in them, measures as overlays.

The form is that of ``ai-edge-model-explorer`` 0.1.34 (``graph_builder.py``, ``node_data_builder.py``). The viewer drops
rows that it does not understand without a word, so nothing is written but what these files name. The text of each node
is put together from parts that are encoded once: runs have a hundred thousand of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, Final

from fxdebug.analyses.measures import available, derive
from fxdebug.data.calls import Call
from fxdebug.data.graphs import NodeKind
from fxdebug.data.measures import CALL, OPERATION, Numbers, names_in
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.features.model_explorer.names import own_names
from fxdebug.features.shared.programs.dataflow import Dataflow, Source
from fxdebug.features.shared.programs.facts import Fact, constants_of, shortened, statistics
from fxdebug.files.write_file import all_written_whole, write_text
from fxdebug.printable import printable, printable_lines
from fxdebug.query.measures import OF_TENSORS, derived, id_of, numbers_of
from fxdebug.query.network import Node, network_of

_GROUP: Final = "___group___"  # the end of the id of a layer, after its namespace
_GRADIENT = [{"stop": 0, "bgColor": "#f4f7fb"}, {"stop": 0.5, "bgColor": "#8fb4dd"}, {"stop": 1, "bgColor": "#1f4e8c"}]
_STATISTICS = ("mean", "std", "absmax", "nan", "inf", "zeros")  # each an overlay
_COUNTS = ("nan", "inf", "zeros")  # that are 0 nearly everywhere
_STATUS_COLORS = {"verified": "#cfe8cf", "recorded": "#fbe3b3", "opaque": "#e3e3e8"}
_RAISED = '"style":{"backgroundColor":"#f7c6c5","borderColor":"#b0413e"}'
_LONGEST = 2_000  # letters of a fact
_COUNTED = 20_000  # nodes of a run whose operations are counted without being asked for: it takes longer than the rest


def write_model_explorer(trace: TraceData, path: Path, *, measures: str | Sequence[str] = ()) -> Path:
    """Write the graph and its overlays into a folder; to a path that ends in ``.json``, the graph alone.

    ``graph.json`` is the model. Every other file is an overlay: a measure that was taken or is named in ``measures``, a
    statistic, the trust in the graphs. ``model-explorer FOLDER/graph.json --node_data_paths=FOLDER/flops.json`` opens
    them.
    """
    graph = RunGraph(trace, trace.model, measures)
    text = collection_text(trace.model, [graph])
    if path.suffix.lower() == ".json":
        return write_text(path, text)
    with all_written_whole(path) as new:
        new.mkdir()
        write_text(new / "graph.json", text)
        for name, overlay in graph.overlays().items():
            write_text(new / f"{name}.json", json_text({graph.id: overlay}))
    return path


def collection_text(label: str, graphs: Sequence[RunGraph]) -> str:
    """Return the file with some graphs."""
    inside = ",".join([graph.text() for graph in graphs])
    return f'{{"label":{_quoted(label)},"graphSorting":"name_asc","graphs":[{inside}]}}'


class RunGraph:
    """The graph of one run, as Model Explorer has it; ``id`` is its name there."""

    def __init__(self, trace: TraceData, id: str, measures: str | Sequence[str] = ()) -> None:
        self.trace, self.id = trace, printable(id) or "run"
        self._flow = Dataflow(trace)
        self._nodes = {node.id: node for node in self._flow.nodes}
        self._namespaces = _namespaces(trace)
        self._numbers = _numbers(trace, self._nodes, names_in(measures) if measures else ())
        self._in_nodes = {name: ones for name, ones in self._numbers.items() if name not in OF_TENSORS}
        self._contents: dict[int, list[Node]] | None = None  # the nodes of each call, when first asked for
        self._pairs: dict[tuple[str, str], str] = {}  # what was encoded before
        self._heads: dict[tuple[int, NodeKind, str | None], str] = {}  # the same for the nodes of a call
        self._tensors: dict[int, str] = {}  # number of a value → its facts

    def id_of_node(self, node: str) -> str | None:
        """Return the id by which the program knows a node of the run: an operation, or a call as a layer."""
        if node in self._nodes:
            return printable(node)
        known = network_of(self.trace).nodes.get(node)
        return None if known is None or known.kind != "call_module" else self._namespaces[known.call.index] + _GROUP

    def contents(self, call: Call, without: Collection[str | None] = ()) -> dict[tuple[str, str], list[str]]:
        """Return the ids of the nodes in a call itself by their operation and target, in execution order."""
        if self._contents is None:
            self._contents = {}
            for node in self._flow.nodes:
                self._contents.setdefault(_box_of(node).index, []).append(node)
        found: dict[tuple[str, str], list[str]] = {}
        for node in self._contents.get(call.index, ()):
            if node.id not in without:
                found.setdefault((node.op, node.target), []).append(printable(node.id))
        return found

    def text(self) -> str:
        """Return the graph as JSON: its nodes, and the facts about calls as those of layers."""
        nodes = ",".join([self._node(node) for node in self._flow.nodes])
        layers = json_text({"": _facts_of_run(self.trace)} | self._layers())
        layout = '"layoutConfigs":{"keepLayersWithASingleChild":true}'
        return f'{{"id":{_quoted(self.id)},"nodes":[{nodes}],"groupNodeAttributes":{layers},{layout}}}'

    # Nodes ---------------------------------------------------------------------------------------

    def _node(self, node: Node) -> str:
        sources = self._flow.sources(node)
        namespace = _quoted(self._namespaces[_box_of(node).index])
        parts = [f'"id":{_quoted(node.id)},"label":{_quoted(self._label(node))},"namespace":{namespace}']
        parts.append(f'"attrs":[{",".join(self._attributes(node))}]')
        if sources:
            parts.append(f'"incomingEdges":[{",".join(map(_edge, range(len(sources)), sources))}]')
        if node.values:
            parts.append(f'"outputsMetadata":[{_numbered([self._tensor(value) for value in node.values])}]')
        if node.kind == "call_module" and node.call.error is not None:
            parts.append(_RAISED)
        return "{" + ",".join(parts) + "}"

    def _label(self, node: Node) -> str:
        if node.kind == "call_module":
            return shortened(node.call.type, 60)
        return shortened(node.op if node.kind in ("call_function", "call_method") else node.target, 60) or node.kind

    def _attributes(self, node: Node) -> Iterator[str]:
        """Yield what is known of a node itself; its statistics stand with its results."""
        call = node.call
        head = call.index, node.kind, node.status
        known = self._heads.get(head)
        if known is None:
            facts = {"kind": node.kind, "module": call.path, "class": call.type, "status": node.status}
            known = self._heads[head] = ",".join([self._pair(key, text) for key, text in facts.items() if text])
        yield known
        if node.kind in ("call_function", "call_method", "get_attr"):
            yield self._pair("target", node.target)
        if node.source is not None:
            yield self._pair("source", node.source)
        for name, constant in constants_of(node, 100).items():
            yield self._pair(f"argument {name}", str(constant))
        if node.kind == "call_module" and call.error is not None:
            yield self._pair("error", str(call.error))
        for name, numbers in self._in_nodes.items():
            if node.id in numbers:
                yield _number_pair(name, numbers[node.id])

    def _pair(self, key: str, text: str) -> str:
        known = self._pairs.get((key, text))
        if known is None:
            value = _quoted(shortened(text, _LONGEST))
            known = self._pairs[key, text] = f'{{"key":{_quoted(key)},"value":{value}}}'
        return known

    def _tensor(self, value: Value) -> str:
        """Return the facts about a tensor; the program writes ``tensor_shape`` at the arrows."""
        known = self._tensors.get(value.number)
        if known is None:
            part = None if value.sharding is None else str(value.sharding)
            facts = {"tensor_shape": value.label, "device": value.device, "parameter": value.name, "part": part}
            parts = [self._pair(key, text) for key, text in facts.items() if text]
            numbers = {} if value.stats is None else statistics(value.stats)
            parts += [_number_pair(name, number) for name, number in numbers.items() if number is not None]
            known = self._tensors[value.number] = ",".join(parts)
        return known

    # Layers --------------------------------------------------------------------------------------

    def _layers(self) -> dict[str, dict[str, str]]:
        """Return the facts about every call by its namespace."""
        layers: dict[str, dict[str, str]] = {}
        for call in self.trace.calls:
            facts: dict[str, Fact | None] = {"class": call.type, "call": call.id, "path": call.path}
            facts |= {"status": call.status, "reason": call.reason, "source": call.source}
            facts["error"] = None if call.error is None else str(call.error)
            facts |= {slot: value.label for slot, value in call.inputs.named()}
            returned = () if call.outputs is None else call.outputs.named()
            facts |= {f"→ {slot}": value.label for slot, value in returned}
            id = id_of(self.trace, call)
            facts |= {name: numbers[id] for name, numbers in self._in_nodes.items() if id in numbers}
            known = {printable(key): fact for key, fact in facts.items() if fact not in (None, "")}
            layers[self._namespaces[call.index]] = {key: shortened(str(fact), _LONGEST) for key, fact in known.items()}
        return layers

    # Overlays ------------------------------------------------------------------------------------

    def overlays(self) -> dict[str, dict[str, Any]]:
        """Return the data of each overlay by its name; a measure that nothing here has is left out."""
        ids = {id: known for id in network_of(self.trace).nodes if (known := self.id_of_node(id)) is not None}
        found = {name: self._overlay(name, numbers, ids) for name, numbers in self._numbers.items()}
        status = {
            ids[id]: {"value": node.status, "bgColor": _STATUS_COLORS[node.status]}
            for id, node in self._nodes.items()
            if node.status is not None
        }
        found["status"] = {"name": "status", "results": status}
        return {name: overlay for name, overlay in found.items() if overlay["results"]}

    def _overlay(self, name: str, numbers: Numbers, ids: Mapping[str, str]) -> dict[str, Any]:
        unit = available(self.trace)[name].unit
        results = {ids[id]: {"value": one} for id, one in numbers.items() if id in ids}
        return {"name": f"{name} [{unit}]" if unit else name, "results": results, "gradient": _GRADIENT}


def _box_of(node: Node) -> Call:
    """Return the call whose layer a node is in."""
    return node.call.parent or node.call if node.kind == "call_module" else node.call


def _edge(place: int, source: Source) -> str:
    ends = f'"sourceNodeId":{_quoted(source.node)},"sourceNodeOutputId":"{source.output}"'
    return f'{{{ends},"targetNodeInputId":"{place}"}}'


def _namespaces(trace: TraceData) -> list[str]:
    """Return the namespace of every call: the names of the calls around it and its own."""
    names: list[str] = []
    for call, own in zip(trace.calls, own_names(trace)):
        part = own.replace("/", "\\/") or "(unnamed)"
        names.append(part if call.parent_index is None else f"{names[call.parent_index]}/{part}")
    return names


def _facts_of_run(trace: TraceData) -> dict[str, str]:
    facts = {"model": trace.model, "started": trace.started, "calls": str(len(trace.calls)), **trace.versions}
    if trace.error is not None:
        facts["raised"] = str(trace.error)
    return {key: printable_lines(text) for key, text in facts.items() if text}


# Numbers -----------------------------------------------------------------------------------------


def _numbers(trace: TraceData, nodes: Mapping[str, Node], asked: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the finite numbers of every measure to show, by the ids of calls and operations."""
    counted = ("flops",) if trace.graph_source is not None and len(nodes) <= _COUNTED else ()
    names = dict.fromkeys([*asked, *trace.taken, *counted, *_STATISTICS])
    derive(trace, *names)
    known = available(trace)
    found = {}
    for name in names:
        if name in known and known[name].of.isdisjoint((CALL, OPERATION)):
            continue
        numbers = _finite(_numbers_of(trace, nodes, name))
        if numbers and (name in asked or name not in _COUNTS or any(numbers.values())):
            found[name] = numbers
    return found


def _numbers_of(trace: TraceData, nodes: Mapping[str, Node], name: str) -> Mapping[str, Any]:
    taken = trace.taken.get(name) or derived(trace).get(name)
    if taken is not None:
        return taken.numbers
    read = OF_TENSORS.get(name)
    if read is None:
        return numbers_of(trace, name)
    return {id: read(node.values[0]) for id, node in nodes.items() if node.values}


def _finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    return {id: one for id, one in numbers.items() if isinstance(one, (int, float)) and math.isfinite(one)}


# JSON --------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return encode_basestring(text if text.isprintable() else printable(text))


def _number_pair(name: str, number: Fact) -> str:
    return f'{{"key":"{name}","value":"{number}"}}'


def _numbered(parts: Sequence[str]) -> str:
    """Return lists of attributes as those of the first, the second … result or argument."""
    return ",".join([f'{{"id":"{place}","attrs":[{part}]}}' for place, part in enumerate(parts)])


def json_text(data: object) -> str:
    """Return JSON in one line; numbers that it cannot hold are an error."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
