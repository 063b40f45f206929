"""A run, and what was found in it, as records: the JSON and the CSV that the commands print.

``docs/command-line.md`` documents the forms. ``SCHEMAS`` names each with its version.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxdebug.analyses.findings import Findings
from fxdebug.data.calls import Call, Parameter
from fxdebug.data.findings import number_as_json, value_as_json
from fxdebug.data.trace import TraceData
from fxdebug.data.values import UNKNOWN, Inputs, Outputs, Stats, Value
from fxdebug.query.find import facts_of
from fxdebug.query.names import own_parameters
from fxdebug.query.network import Node
from fxdebug.query.where import Measured, Shape

if TYPE_CHECKING:
    import networkx as nx

SCHEMAS = {name: f"fxdebug.{name}/1" for name in ("show", "call", "find", "ops", "check", "graph")}
STATISTICS = ("mean", "std", "min", "max")
_COLUMNS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")


@dataclass(frozen=True)
class FoundRow:
    """A call or an operation that was found, with the facts that ``where`` asked for (else four statistics)."""

    item: Call | Node
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_call(self) -> bool:
        """Is it a call of a module?"""
        return isinstance(self.item, Call)

    @property
    def id(self) -> str:
        """The id of the call or of the operation."""
        return self.item.id

    @property
    def kind(self) -> str:
        """The class of the module, or the name of the operation."""
        return self.item.type if isinstance(self.item, Call) else self.item.op

    @property
    def status(self) -> str | None:
        """The status of its graph."""
        return self.item.status

    @property
    def source(self) -> str | None:
        """The line of the user's code."""
        return self.item.source

    @property
    def values(self) -> tuple[Value, ...]:
        """The tensors of its result."""
        return tuple(self.item.outputs or ()) if isinstance(self.item, Call) else self.item.values

    @property
    def label(self) -> str:
        """Dtype and shape of the first tensor of its result, and which part of a distributed one it is."""
        return tensor_label(self.values[0]) if self.values else ""

    @property
    def stats(self) -> Stats | None:
        """The statistics of the first tensor of its result."""
        return self.values[0].stats if self.values else None


def tensor_label(tensor: Measured) -> str:
    """Return dtype and shape, and which part of a distributed tensor this is: ``float32[2, 3] local shard of 2×6``."""
    sizes = ", ".join("?" if size == UNKNOWN else str(size) for size in tensor.shape)
    part = "" if tensor.sharding is None else str(tensor.sharding)
    return f"{tensor.dtype}[{sizes}]" + (f" {part}" if part else "")


def found_rows(
    trace: TraceData, found: Sequence[Call | Node], dtype: str | None, shape: Shape, where: str | None
) -> list[FoundRow]:
    """Return the rows of what ``find`` or ``ops`` returned for these conditions."""
    if where is not None:
        return [FoundRow(item, facts) for item, facts in zip(found, facts_of(trace, found, dtype, shape, where))]
    rows = []
    for item in found:
        stats = FoundRow(item).stats
        rows.append(FoundRow(item, {name: None if stats is None else getattr(stats, name) for name in STATISTICS}))
    return rows


def calls_to(trace: TraceData, depth: int | None) -> list[FoundRow]:
    """Return rows for all calls down to ``depth`` levels below the root."""
    return [FoundRow(call) for call in trace.calls if depth is None or call.depth <= depth]


# Records -----------------------------------------------------------------------------------------


def call_record(call: Call) -> dict[str, Any]:
    """Return a call as plain data, with its tensors."""
    return {
        "id": call.id,
        "path": call.path,
        "type": call.type,
        "parent": None if call.parent is None else call.parent.id,
        "depth": call.depth,
        "duration": call.duration,
        "status": call.status,
        "reason": call.reason,
        "source": call.source,
        "error": None if call.error is None else str(call.error),
        "inputs": _tensors(call.inputs),
        "outputs": _tensors(call.outputs),
    }


def node_record(node: Node) -> dict[str, Any]:
    """Return an operation as plain data, with its results."""
    return {
        "id": node.id,
        "op": node.op,
        "path": node.path,
        "call": node.call.id,
        "status": node.status,
        "source": node.source,
        "outputs": [value_as_json(value) for value in node.values],
    }


def parameter_record(parameter: Parameter) -> dict[str, Any]:
    """Return a parameter or buffer as plain data."""
    stats = parameter.stats
    numbers = {} if stats is None else {name: number_as_json(getattr(stats, name)) for name in _COLUMNS}
    shape = {"dtype": parameter.dtype, "shape": list(parameter.shape), "part": str(parameter.sharding or "")}
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        **shape,
        "requires_grad": parameter.requires_grad,
        **numbers,
    }


def _tensors(slots: Inputs | Outputs | None) -> list[dict[str, Any]]:
    return [] if slots is None else [{"slot": slot, **(value_as_json(value) or {})} for slot, value in slots.named()]


# JSON --------------------------------------------------------------------------------------------


def trace_json(trace: TraceData, depth: int | None = None) -> str:
    """Return the calls of a run, down to ``depth`` levels below the root, and its notes."""
    calls = [call_record(row.item) for row in calls_to(trace, depth) if isinstance(row.item, Call)]
    facts = {"duration": trace.duration, "method": trace.root.method, "never_called": list(trace.never_called)}
    notes = [{"what": note.what, "where": note.where} for note in trace.notes]
    return _json("show", trace.model, **facts, calls=calls, notes=notes)


def call_json(trace: TraceData, call: Call) -> str:
    """Return one call with its code, its arguments, its results and its weights."""
    weights = [parameter_record(parameter) for parameter in own_parameters(trace, call)]
    return _json("call", trace.model, **call_record(call), code=call.code, parameters=weights)


def found_json(trace: TraceData, rows: Sequence[FoundRow], ops: bool) -> str:
    """Return what was found, each with the facts that ``where`` asked for."""
    found = []
    for row in rows:
        record = call_record(row.item) if isinstance(row.item, Call) else node_record(row.item)
        found.append({**record, "facts": {name: number_as_json(fact) for name, fact in row.facts.items()}})
    return _json("ops" if ops else "find", trace.model, found=found)


def findings_json(trace: TraceData, findings: Findings) -> str:
    """Return the findings of ``check``."""
    return _json("check", trace.model, **findings.as_json())


def graph_json(trace: TraceData, graph: nx.MultiDiGraph) -> str:
    """Return a graph in networkx's node-link form, which ``networkx.node_link_graph(data, edges="edges")`` reads."""
    nodes = [{"id": id, **data} for id, data in graph.nodes(data=True)]
    facts = {"directed": True, "multigraph": True, "graph": dict(graph.graph)}
    return _json("graph", trace.model, **facts, nodes=nodes, edges=_edges(graph))


def _edges(graph: nx.MultiDiGraph) -> list[dict[str, Any]]:
    edges = graph.edges(keys=True, data=True)
    return [{"source": source, "target": target, "key": key, **data} for source, target, key, data in edges]


def _json(form: str, model: str, **facts: Any) -> str:
    return json.dumps({"schema": SCHEMAS[form], "model": model, **facts}, indent=2, allow_nan=False)


# CSV ---------------------------------------------------------------------------------------------


def found_csv(rows: Sequence[FoundRow], asked: bool = False) -> str:
    """Return a line for each call or operation with its first result; ``asked``: also its facts, after ``where.``."""
    names = ("id", "kind", "path", "depth", "status", "source", "duration", "error", "outputs", "dtype", "shape")
    facts = list(rows[0].facts) if rows and asked else []
    lines: list[list[Any]] = []
    for row in rows:
        item, stats = row.item, row.stats
        call = item if isinstance(item, Call) else item.call
        own = (item.duration, item.error) if isinstance(item, Call) else (None, None)
        shape = "×".join(map(str, row.values[0].shape)) if row.values else None
        dtype = row.values[0].dtype if row.values else None
        place = [row.id, row.kind, call.path, call.depth, row.status, row.source]
        numbers = [None if stats is None else getattr(stats, name) for name in _COLUMNS]
        lines.append([*place, *own, len(row.values), dtype, shape, *numbers, *(row.facts[name] for name in facts)])
    return _csv([*names, *_COLUMNS, *(f"where.{name}" for name in facts)], lines)


def call_csv(trace: TraceData, call: Call) -> str:
    """Return a line for each tensor of one call: inputs, outputs, weights."""
    tensors: list[tuple[str, str, Measured]] = [("input", slot, value) for slot, value in call.inputs.named()]
    if call.outputs is not None:
        tensors += [("output", slot, value) for slot, value in call.outputs.named()]
    tensors += [(parameter.kind, parameter.name, parameter) for parameter in own_parameters(trace, call)]
    lines = []
    for kind, slot, tensor in tensors:
        numbers = [None if tensor.stats is None else getattr(tensor.stats, name) for name in _COLUMNS]
        lines.append([kind, slot, tensor.dtype, "×".join(map(str, tensor.shape)), *numbers])
    return _csv(["kind", "name", "dtype", "shape", *_COLUMNS], lines)


def findings_csv(findings: Findings) -> str:
    """Return a line for each finding."""
    names = ("severity", "kind", "node", "path", "call", "op", "source", "what", "reached", "output")
    return _csv(names, [[getattr(finding, name) for name in names] for finding in findings])


def edges_csv(graph: nx.MultiDiGraph) -> str:
    """Return a line for each edge of a graph."""
    names = ("source", "target", "argument", "kind", "output", "shape", "dtype")
    return _csv(names, [[edge.get(name) for name in names] for edge in _edges(graph)])


def _csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")
