"""The tables of a run as columns: calls, steps of graphs, values, arguments and results, parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fxdebug.data.calls import Call, Failure, Parameter
from fxdebug.data.graphs import NODE_KINDS, STATUSES, Graph, arguments_text, refs_in, text_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Inputs, Item, Outputs, Sharding, Stats, Value, leaves, shape_text
from fxdebug.exports.page.bodies import Bodies
from fxdebug.exports.page.pack import NONE, Column, Texts, firsts, integers, reals
from fxdebug.printable import printable, printable_lines
from fxdebug.query.measures import size_of

_NAN = float("nan")
_LONGEST_CODE = 40_000  # characters of the text of one graph
_LONGEST_ARGUMENTS = 400  # characters of the arguments of one operation, or of one argument that is no tensor
_PORT_KINDS = ("inputs", "outputs", "given", "returned")  # the order of PORT_KINDS in payload.ts
_TRAINING, _GRAD, _LATE, _UNREGISTERED, _HAS_SUBMODULES = 1, 2, 4, 8, 16
_ORIGINS = {"late": _LATE, "unregistered": _UNREGISTERED, "unnamed": _UNREGISTERED}


# Calls -------------------------------------------------------------------------------------------


def call_columns(trace: TraceData, bodies: Bodies, texts: Texts) -> dict[str, Any]:
    """Return the calls as columns, and the tables that they refer to: failures, guards, arguments and results."""
    calls = trace.calls
    graphs = trace.call_graphs
    own = [None] * len(calls) if graphs is None else list(graphs.bodies)
    graph_of = [NONE if body is None or body.graph is None else body.graph for body in own]
    sizes = [0 if graph == NONE else len(trace.graphs[graph]) for graph in graph_of]
    failures = _Distinct([call.error for call in calls])
    guards = _Distinct([(body.guards or None) if body is not None else None for body in own])
    ports, port_counts = _ports(calls, texts)
    statuses = ("", *STATUSES)
    return {
        "calls": {
            "path": texts.column([call.path for call in calls]),
            "type": texts.column([call.type for call in calls]),
            "number": integers([call.number for call in calls]),
            "parent": integers([NONE if call.parent_index is None else call.parent_index for call in calls]),
            "depth": integers([call.depth for call in calls]),
            "body": integers(bodies.of_call),
            "graph": integers(graph_of),
            "item": integers(bodies.item_of_call),
            "status": integers([0 if body is None else statuses.index(body.status) for body in own]),
            "reason": texts.column([None if body is None else body.reason for body in own]),
            "source": texts.column([call.source for call in calls]),
            "method": texts.column([call.method for call in calls]),
            "duration": reals([call.duration for call in calls]),
            "failure": integers(failures.positions),
            "guards": integers(guards.positions),
            "flags": integers([_flags(call) for call in calls]),
            "firstStep": firsts(sizes),
            "firstPort": firsts(port_counts),
            "finished": integers([NONE if call.finished is None else call.finished for call in calls]),
        },
        "ports": ports,
        "failures": [_failure(failure) for failure in failures.listed],
        "guards": [
            [
                {"what": printable(one.what), "answer": printable(one.answer), "source": printable(one.source or "")}
                for one in listed
            ]
            for listed in guards.listed
        ],
    }


class _Distinct:
    """Things that several calls share: each once, and its position for every call (-1 for none)."""

    def __init__(self, things: Sequence[Any]) -> None:
        known: dict[Any, int] = {}
        self.positions = [NONE if thing is None else known.setdefault(thing, len(known)) for thing in things]
        self.listed = list(known)


def _flags(call: Call) -> int:
    flags = _ORIGINS.get(call.origin, 0) | (_TRAINING if call.training else 0) | (_GRAD if call.grad else 0)
    return flags | (_HAS_SUBMODULES if call.has_submodules else 0)


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "type": printable(failure.type),
        "message": printable_lines(failure.message),
        "here": failure.here,
        "traceback": printable_lines(failure.traceback or ""),
        "source": printable(failure.source or ""),
    }


def _ports(calls: Iterable[Call], texts: Texts) -> tuple[dict[str, Column], list[int]]:
    kinds: list[int] = []
    slots: list[int] = []
    values: list[int] = []
    others: list[int] = []
    counts: list[int] = []
    for call in calls:
        before = len(kinds)
        for kind, name in enumerate(_PORT_KINDS):
            passed = getattr(call, name)
            for slot, item in () if passed is None else _passed(passed):
                kinds.append(kind)
                slots.append(texts.add(slot))
                values.append(item.number if isinstance(item, Value) else NONE)
                others.append(NONE if isinstance(item, Value) else texts.add(_short(item)))
        counts.append(len(kinds) - before)
    columns = {"kind": integers(kinds), "slot": integers(slots), "value": integers(values), "text": integers(others)}
    return columns, counts


def _passed(passed: Inputs | Outputs) -> Iterable[tuple[str, Item]]:
    """Yield the tensors that were passed by slot, and the arguments without tensors as they are."""
    named: list[tuple[str, Item]] = [("", passed.item)] if isinstance(passed, Outputs) else []
    if isinstance(passed, Inputs):
        named = [(f"args[{i}]", item) for i, item in enumerate(passed.args)] + list(passed.kwargs.items())
    for slot, item in named:
        if isinstance(item, Value):
            yield slot, item
            continue
        inside = list(leaves(item, slot)) if isinstance(item, Group) else []
        yield from inside
        if not inside:
            yield slot, item


def _short(item: Item) -> str:
    text = text_of(item)
    return text if len(text) <= _LONGEST_ARGUMENTS else text[: _LONGEST_ARGUMENTS - 1] + "…"


# Steps of graphs ---------------------------------------------------------------------------------


def step_columns(trace: TraceData, texts: Texts) -> dict[str, Any]:
    """Return the steps of the distinct graphs, and by call and step the value and the source line."""
    ops = [op for graph in trace.graphs for op in graph.ops]
    operands = [read for graph in trace.graphs for read in _operands(graph)]
    values: list[int] = []
    sources: list[int] = []
    more: list[tuple[int, int]] = []
    graphs = trace.call_graphs
    for body in () if graphs is None else graphs.bodies:
        if body.graph is None:
            continue
        sources += [NONE if source is None else texts.add(source) for source in body.sources]
        for item in body.results:
            if isinstance(item, Value):
                values.append(item.number)
                continue
            inside = [value.number for _, value in leaves(item)] if isinstance(item, Group) else []
            more += [(len(values), number) for number in inside[1:]]
            values.append(inside[0] if inside else NONE)
        missing = len(values) - len(sources)
        sources += [NONE] * missing
    return {
        "first": firsts([len(graph) for graph in trace.graphs]),
        "code": integers([_code(graph, texts) for graph in trace.graphs]),
        "name": texts.column([op.name for op in ops]),
        "kind": integers([NODE_KINDS.index(op.kind) for op in ops]),
        "op": texts.column([op.op for op in ops]),
        "target": texts.column([op.target for op in ops]),
        "text": texts.column([_arguments(op.args, op.kwargs) for op in ops]),
        "firstOperand": firsts([len(read) for read in operands]),
        "operand": integers([position for read in operands for position in read]),
        "value": integers(values),
        "source": integers(sources),
        "moreStep": integers([step for step, _ in more]),
        "moreValue": integers([number for _, number in more]),
    }


def _operands(graph: Graph) -> list[list[int]]:
    """Return, by step of a graph, the positions of the steps whose results it reads."""
    positions = {op.name: i for i, op in enumerate(graph.ops)}
    return [
        [positions[name] for arg in (*op.args, *op.kwargs.values()) for _, name in refs_in(arg) if name in positions]
        for op in graph.ops
    ]


def _code(graph: Graph, texts: Texts) -> int:
    return texts.add(graph.code, lines=True) if len(graph.code) <= _LONGEST_CODE else NONE


def _arguments(args: Sequence[Any], kwargs: Any) -> str:
    text = arguments_text(args, kwargs)
    return text if len(text) <= _LONGEST_ARGUMENTS else text[: _LONGEST_ARGUMENTS - 1] + "…"


# Values and parameters ---------------------------------------------------------------------------


def value_columns(values: Sequence[Value], texts: Texts) -> dict[str, Any]:
    """Return the tensors of a run with their statistics."""
    return {
        "shape": integers([texts.add(shape_text(value.shape)) for value in values]),
        "dtype": texts.column([value.dtype for value in values]),
        "device": texts.column([value.device for value in values]),
        "layout": texts.column([value.layout for value in values]),
        "type": texts.column([value.type for value in values]),
        "name": texts.column([value.name for value in values]),
        "sharding": texts.column([sharding_text(value.sharding) for value in values]),
        "detail": texts.column([value.detail for value in values]),
        "storage": integers([NONE if value.storage is None else value.storage for value in values]),
        "requiresGrad": integers([int(value.requires_grad) for value in values]),
        "bytes": reals([_nan_if_none(size_of(value)) for value in values]),
        "statistics": statistics_columns([value.stats for value in values]),
    }


def statistics_columns(statistics: Sequence[Stats | None]) -> dict[str, Column]:
    """Return statistics as columns, NaN where there are none. Complex means are shown by their magnitude."""
    columns: dict[str, Column] = {}
    for name in ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros"):
        columns[name] = reals([_NAN if one is None else _real(getattr(one, name)) for one in statistics])
    return columns


def _real(number: complex | float | None) -> float:
    if number is None:
        return _NAN
    try:
        return abs(number) if isinstance(number, complex) else float(number)
    except OverflowError:  # an integer beyond the largest float
        return math.inf if number > 0 else -math.inf  # type: ignore[operator]


def _nan_if_none(number: float | None) -> float:
    return _NAN if number is None else number


def sharding_text(sharding: Sharding | None) -> str:
    """Return the layout of a distributed tensor in one line: placements, mesh, and the whole shape.

    >>> sharding_text(Sharding((8, 4), (4, 1), (2,), ("tp",), ("S(0)",)))
    'S(0) over tp=2, whole 8×4'
    """
    if sharding is None:
        return ""
    names = sharding.mesh_dims or ("",) * len(sharding.mesh)
    mesh = " × ".join(f"{name}={size}" if name else str(size) for name, size in zip(names, sharding.mesh))
    return f"{', '.join(sharding.placements)} over {mesh}, whole {shape_text(sharding.shape)}"


def parameter_columns(parameters: Sequence[Parameter], texts: Texts) -> dict[str, Any]:
    """Return the parameters and buffers of the model, with statistics before and after the run."""
    return {
        "names": [[printable(name) for name in one.names] for one in parameters],
        "kind": integers([one.kind == "buffer" for one in parameters]),
        "shape": integers([texts.add(shape_text(one.shape)) for one in parameters]),
        "dtype": texts.column([one.dtype for one in parameters]),
        "device": texts.column([one.device for one in parameters]),
        "sharding": texts.column([sharding_text(one.sharding) for one in parameters]),
        "requiresGrad": integers([int(one.requires_grad) for one in parameters]),
        "changed": integers([int(one.changed) for one in parameters]),
        "before": statistics_columns([one.before if one.changed else None for one in parameters]),
        "statistics": statistics_columns([one.stats or one.before for one in parameters]),
    }
