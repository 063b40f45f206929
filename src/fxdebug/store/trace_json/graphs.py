"""The graphs of a run as JSON in ``trace.json``, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fxdebug.data.graphs import CallGraph, Graph, Op, Operand, Ref, RunGraphs, refs_in
from fxdebug.data.values import Group, Value, fast_constructor
from fxdebug.files.schema import (
    Damaged,
    Reader,
    columns_of,
    defaults_of,
    record,
    records_of,
    rows,
    shown,
    table,
    texts,
    tuples,
)
from fxdebug.store.trace_json.records import readers_with

CALL_GRAPH_COLUMNS = tuple(f.name for f in fields(CallGraph))

ToJson = Callable[[Any], Any]


def operand_to_json(operand: Operand, item_to_json: ToJson) -> Any:
    """Return the JSON of an operand: like an item's, with ``{"node": name}`` for the result of another node."""
    if isinstance(operand, Ref):
        return {"node": operand.node}
    if isinstance(operand, Group):
        coded: dict[str, Any] = {operand.kind: operand.type}
        coded["items"] = [operand_to_json(item, item_to_json) for item in operand.items]
        if operand.keys is not None:
            coded["keys"] = [item_to_json(key) for key in operand.keys]
        return coded
    return item_to_json(operand)


def graph_to_json(graph: Graph, item_to_json: ToJson) -> dict[str, Any]:
    """Return ``{"code": …, "ops": rows}``, a row per node in the order of ``Op``'s fields."""
    rows = []
    for op in graph.ops:
        args = [operand_to_json(arg, item_to_json) for arg in op.args]
        kwargs = {name: operand_to_json(arg, item_to_json) for name, arg in op.kwargs.items()}
        rows.append([op.name, op.kind, op.op, op.target, args, kwargs, op.grad, op.autocast])
    return {"code": graph.code, "ops": rows}


def call_graph_row(body: CallGraph, item_to_json: ToJson) -> list[Any]:
    """Return a call's graph as a list in the order of ``CALL_GRAPH_COLUMNS``."""
    guards = [[guard.what, guard.answer, guard.source] for guard in body.guards]
    results = [item_to_json(item) for item in body.results]
    writes = [[position, value.number] for position, value in body.writes]
    return [body.status, body.reason, guards, body.graph, results, list(body.sources), list(body.calls), writes]


# Reading -----------------------------------------------------------------------------------------


def run_graphs_of_tables(content: Mapping[str, Any], values: Sequence[Value], calls: int) -> RunGraphs:
    """Return all graphs in the JSON of a trace, and the graph of each of its calls. Raises :class:`Damaged`."""
    special = readers_with(values)
    if "graphs" not in content:
        raise Damaged("graphs is missing")
    graphs = _graphs(content, special)
    columns = table(content, "bodies", columns_of(CallGraph, special), defaults_of(CallGraph))
    if len(columns["status"]) != calls:
        raise Damaged(f"bodies has {len(columns['status'])} rows, calls has {calls}")
    results, sources = columns["results"], columns["sources"]
    columns["sources"] = [lines or (None,) * len(items) for lines, items in zip(sources, results)]
    steps = [[op.kind for op in graph.ops] for graph in graphs]
    for place, (number, items, lines, inner, writes) in enumerate(
        zip(columns["graph"], results, columns["sources"], columns["calls"], columns["writes"])
    ):
        kinds: list[str] = []
        if number is not None:
            if not 0 <= number < len(graphs):
                raise Damaged(f"bodies[{place}].graph is {shown(number)} of {len(graphs)}")
            kinds = steps[number]
        if not len(items) == len(lines) == len(kinds):
            raise Damaged(f"bodies[{place}] has {len(items)} results and {len(lines)} sources of {len(kinds)} nodes")
        if len(inner) != kinds.count("call_module") or not all(0 <= call < calls for call in inner):
            raise Damaged(f"bodies[{place}].calls are not the calls of its graph")
        if not all(0 <= position < len(kinds) for position, _ in writes):
            raise Damaged(f"bodies[{place}].writes are not by nodes of its graph")
    return RunGraphs(tuple(graphs), tuple(map(_quick_call_graph, *columns.values())))


_quick_op, _quick_call_graph = fast_constructor(Op), fast_constructor(CallGraph)


def _graphs(content: Mapping[str, Any], special: Mapping[Any, Reader]) -> list[Graph]:
    """Return the graphs; every name in one is there once, and refers to a node before it."""
    ops = rows(_quick_op, columns_of(Op, special), defaults_of(Op))
    stored = record(content, "", {"graphs": tuples(records_of({"code": texts, "ops": tuples(ops)}))})["graphs"]
    graphs = []
    for place, (code, nodes) in enumerate(stored):
        known: set[str] = set()
        for op in nodes:
            for operand in (*op.args, *op.kwargs.values()):
                if type(operand) in (Ref, Group):
                    unknown = next((name for _, name in refs_in(operand) if name not in known), None)
                    if unknown is not None:
                        raise Damaged(f"graphs[{place}].{op.name} refers to {shown(unknown)}, no node before it")
            if op.name in known:
                raise Damaged(f"graphs[{place}] has two nodes {shown(op.name)}")
            known.add(op.name)
        graphs.append(Graph(nodes, code))
    return graphs
