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

from fxdebug.analyses.numbers.findings import extent, is_healthy
from fxdebug.data.calls import Call, Parameter
from fxdebug.data.findings import Finding, number_as_json, value_as_json
from fxdebug.data.measures import Unit
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import UNKNOWN, Inputs, Outputs, Stats, Value
from fxdebug.exports.columns import column_values
from fxdebug.printable import printable_cells
from fxdebug.query.attach_measures import all_numbers
from fxdebug.query.find import facts_of
from fxdebug.query.measures import Number, Tensor, id_of, measures_of
from fxdebug.query.names import own_parameters
from fxdebug.query.network import Node
from fxdebug.query.where import Shape, place_of

if TYPE_CHECKING:
    import networkx as nx

SCHEMAS = {
    name: f"fxdebug.{name}/1"
    for name in ("show", "call", "find", "ops", "check", "graph", "measures", "rules", "plugins", "compare")
}
STATISTICS = ("mean", "std", "min", "max")
_COLUMNS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros")


@dataclass(frozen=True)
class FoundRow:
    """A call or an operation that was found, with the facts that ``where`` asked for (else four statistics).

    ``units`` are those of the facts. ``measures`` has the numbers that analyses took of it, ``columns`` the facts and
    numbers that were asked for by name.
    """

    item: Call | Node
    facts: dict[str, Any] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    columns: dict[str, str | Number] = field(default_factory=dict)

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


def tensor_label(tensor: Tensor) -> str:
    """Return dtype and shape, and which part of a distributed tensor this is: ``float32[2, 3] local shard of 2×6``."""
    sizes = ", ".join("?" if size == UNKNOWN else str(size) for size in tensor.shape)
    part = "" if tensor.sharding is None else str(tensor.sharding)
    return f"{tensor.dtype}[{sizes}]" + (f" {part}" if part else "")


def found_rows(
    trace: TraceData, found: Sequence[Call | Node], dtype: str | None, shape: Shape, where: str | None
) -> list[FoundRow]:
    """Return the rows of what ``find`` or ``ops`` returned for these conditions."""
    if where is not None:
        every = facts_of(trace, found, dtype, shape, where)
        known = measures_of(trace)
        units = {name: known[place_of(name)[1]].unit for name in (every[0] if every else ())}
        return [_row(trace, item, facts=facts, units=units) for item, facts in zip(found, every)]
    rows = []
    for item in found:
        stats = FoundRow(item).stats
        facts = {name: None if stats is None else getattr(stats, name) for name in STATISTICS}
        rows.append(_row(trace, item, facts=facts))
    return rows


def calls_to(trace: TraceData, depth: int | None, columns: Sequence[str] = ()) -> list[FoundRow]:
    """Return rows for all calls down to ``depth`` levels below the root, with the columns of these names."""
    calls = [call for call in trace.calls if depth is None or call.depth <= depth]
    return [_row(trace, call, columns=column_values(trace, call, columns)) for call in calls]


def _row(trace: TraceData, item: Call | Node, **asked: Any) -> FoundRow:
    return FoundRow(item, measures=all_numbers(trace.taken, id_of(trace, item)), **asked)


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


def trace_json(trace: TraceData, rows: Sequence[FoundRow]) -> str:
    """Return some calls of a run, and its notes."""
    calls = [_record(row) for row in rows]
    facts = {"duration": trace.duration, "method": trace.root.method, "never_called": list(trace.never_called)}
    notes = [{"what": note.what, "where": note.where} for note in trace.notes]
    return _json("show", trace.model, **facts, calls=calls, notes=notes)


def _record(row: FoundRow) -> dict[str, Any]:
    """Return a row as plain data, with its measures and with the columns that were asked for."""
    record = call_record(row.item) if isinstance(row.item, Call) else node_record(row.item)
    columns = {name: one if isinstance(one, str) else number_as_json(one) for name, one in row.columns.items()}
    return record | {"measures": row.measures} | ({"columns": columns} if columns else {})


def call_json(trace: TraceData, call: Call) -> str:
    """Return one call with its code, its arguments, its results and its weights."""
    weights = [parameter_record(parameter) for parameter in own_parameters(trace, call)]
    return _json("call", trace.model, **_record(_row(trace, call)), code=call.code, parameters=weights)


def found_json(trace: TraceData, rows: Sequence[FoundRow], ops: bool) -> str:
    """Return what was found, each with the facts that ``where`` asked for."""
    found = []
    for row in rows:
        found.append({**_record(row), "facts": {name: number_as_json(fact) for name, fact in row.facts.items()}})
    return _json("ops" if ops else "find", trace.model, found=found)


def findings_json(report: ReportData[Finding]) -> str:
    """Return the findings of ``check``."""
    checked = extent(report)
    return _json(
        "check",
        report.subject,
        healthy=is_healthy(report.findings),
        findings=[finding.as_json() for finding in report.findings],
        operations=checked.operations,
        calls=checked.calls,
        unmeasured=checked.unmeasured,
        notes=list(checked.notes),
        settings={name: number_as_json(setting) for name, setting in report.settings.items()},
    )


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
    """Return a line for each call or operation with its first result, its measures and the columns asked for.

    ``asked``: also its facts, after ``where.``.
    """
    names = ("id", "kind", "path", "depth", "status", "source", "duration", "error", "outputs", "dtype", "shape")
    facts = list(rows[0].facts) if rows and asked else []
    measures = list(dict.fromkeys(name for row in rows for name in row.measures))
    columns = [name for name in (rows[0].columns if rows else ()) if name not in measures]
    lines: list[list[Any]] = []
    for row in rows:
        item, stats = row.item, row.stats
        call = item if isinstance(item, Call) else item.call
        own = (item.duration, item.error) if isinstance(item, Call) else (None, None)
        shape = "×".join(map(str, row.values[0].shape)) if row.values else None
        dtype = row.values[0].dtype if row.values else None
        place = [row.id, row.kind, call.path, call.depth, row.status, row.source]
        numbers = [None if stats is None else getattr(stats, name) for name in _COLUMNS]
        further = [row.measures.get(name) for name in measures] + [row.columns[name] for name in columns]
        numbers += [*further, *(row.facts[name] for name in facts)]
        lines.append([*place, *own, len(row.values), dtype, shape, *numbers])
    return csv_text([*names, *_COLUMNS, *measures, *columns, *(f"where.{name}" for name in facts)], lines)


def call_csv(trace: TraceData, call: Call) -> str:
    """Return a line for each tensor of one call: inputs, outputs, weights."""
    tensors: list[tuple[str, str, Tensor]] = [("input", slot, value) for slot, value in call.inputs.named()]
    if call.outputs is not None:
        tensors += [("output", slot, value) for slot, value in call.outputs.named()]
    tensors += [(parameter.kind, parameter.name, parameter) for parameter in own_parameters(trace, call)]
    lines = []
    for kind, slot, tensor in tensors:
        numbers = [None if tensor.stats is None else getattr(tensor.stats, name) for name in _COLUMNS]
        lines.append([kind, slot, tensor.dtype, "×".join(map(str, tensor.shape)), *numbers])
    return csv_text(["kind", "name", "dtype", "shape", *_COLUMNS], lines)


def findings_csv(findings: Sequence[Finding]) -> str:
    """Return a line for each finding."""
    names = ("severity", "kind", "node", "path", "call", "op", "source", "what", "reached", "output", "analysis")
    return csv_text(names, [[getattr(finding, name) for name in names] for finding in findings])


def edges_csv(graph: nx.MultiDiGraph) -> str:
    """Return a line for each edge of a graph."""
    names = ("source", "target", "argument", "kind", "output", "shape", "dtype")
    return csv_text(names, [[edge.get(name) for name in names] for edge in _edges(graph)])


def csv_text(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return lines of cells as CSV, under a line of their names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(printable_cells(head))
    writer.writerows(map(printable_cells, lines))
    return text.getvalue().rstrip("\n")
