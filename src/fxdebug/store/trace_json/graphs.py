"""The graphs of a run as JSON in ``trace.json``, both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fxdebug.data.graphs import CallGraph, Graph, Guard, Op, Operand, Ref, RunGraphs
from fxdebug.data.values import Group, Item, Value

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


def operand_from_json(coded: Any, item_from_json: Callable[[Any], Item]) -> Operand:
    """Return the operand from the JSON of :func:`operand_to_json`."""
    if isinstance(coded, dict):
        if "node" in coded:
            return Ref(coded["node"])
        for kind in ("sequence", "mapping", "object"):
            if kind in coded:
                items: Any = tuple([operand_from_json(item, item_from_json) for item in coded["items"]])
                keys = coded.get("keys")
                named = None if keys is None else tuple([item_from_json(key) for key in keys])
                return Group(kind, coded[kind], items, named)
    return item_from_json(coded)


def graph_to_json(graph: Graph, item_to_json: ToJson) -> dict[str, Any]:
    """Return ``{"code": …, "ops": rows}``, a row per node in the order of ``Op``'s fields."""
    rows = []
    for op in graph.ops:
        args = [operand_to_json(arg, item_to_json) for arg in op.args]
        kwargs = {name: operand_to_json(arg, item_to_json) for name, arg in op.kwargs.items()}
        rows.append([op.name, op.kind, op.op, op.target, args, kwargs, op.grad, op.autocast])
    return {"code": graph.code, "ops": rows}


def graph_from_json(coded: dict[str, Any], item_from_json: Callable[[Any], Item]) -> Graph:
    """Return the graph from the JSON of :func:`graph_to_json`."""
    ops = []
    for name, kind, op, target, args, kwargs, grad, autocast in coded["ops"]:
        operands = tuple([operand_from_json(arg, item_from_json) for arg in args])
        named = {key: operand_from_json(arg, item_from_json) for key, arg in kwargs.items()}
        ops.append(Op(name, kind, op, target, operands, named, grad, autocast))
    return Graph(tuple(ops), coded["code"])


def call_graph_row(body: CallGraph, item_to_json: ToJson) -> list[Any]:
    """Return a call's graph as a list in the order of ``CALL_GRAPH_COLUMNS``."""
    guards = [[guard.what, guard.answer, guard.source] for guard in body.guards]
    results = [item_to_json(item) for item in body.results]
    writes = [[position, value.number] for position, value in body.writes]
    return [body.status, body.reason, guards, body.graph, results, list(body.sources), list(body.calls), writes]


def call_graph_from_row(
    record: dict[str, Any], item_from_json: Callable[[Any], Item], values: tuple[Value, ...]
) -> CallGraph:
    """Return a call's graph from a row, given as a dict by column."""
    record["guards"] = tuple([Guard(*row) for row in record.get("guards", ())])
    record["results"] = tuple([item_from_json(item) for item in record.get("results", ())])
    record["sources"] = tuple(record.get("sources") or [None] * len(record["results"]))
    record["calls"] = tuple(record.get("calls", ()))
    record["writes"] = tuple([(position, values[number]) for position, number in record.get("writes", ())])
    return CallGraph(**record)


def run_graphs_from_json(
    graphs: list[dict[str, Any]],
    bodies: list[dict[str, Any]],
    item_from_json: Callable[[Any, tuple[Value, ...]], Item],
    values: tuple[Value, ...],
) -> RunGraphs:
    """Return all graphs of a file, and the graph of each call."""

    def item(coded: Any) -> Item:
        return item_from_json(coded, values)

    of_calls = tuple([call_graph_from_row(row, item, values) for row in bodies])
    return RunGraphs(tuple([graph_from_json(coded, item) for coded in graphs]), of_calls)
