"""A model at a glance: shapes, parameters, multiply-adds and sizes of every call."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fxdebug.analyses.flops import count_flops
from fxdebug.data.calls import Call, Note, Parameter
from fxdebug.data.measures import Unit
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, shape_text
from fxdebug.operators.dtypes import bytes_of
from fxdebug.query.network import network_of


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One call: shapes of its first input, of its kernel and of its first output; its parameters and multiply-adds.

    ``params``, ``trainable`` and ``macs`` are with all modules and calls in it; ``bytes`` is the size of its results.
    """

    call: str
    type: str
    input: str
    kernel: str
    output: str
    params: int
    trainable: int
    macs: int | None
    bytes: int


COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("input", "input", shown=False),
    Column("kernel", "kernel"),
    Column("output", "output"),
    Column("params", "params", "", "with all modules in it", adds=True),
    Column("trainable", "trainable", "", "of those, with a gradient", adds=True, shown=False),
    Column("macs", "mult-adds", "MAC", "with all calls in it", adds=True),
    Column("bytes", "size", "B", "of its results", adds=True, shown=False),
)


def summary_report(trace: TraceData) -> ReportData[SummaryRow]:
    """Return the calls of a run in execution order, with the totals that torchinfo shows."""
    net = network_of(trace)
    flops = count_flops(trace) if trace.call_graphs is not None else None
    parameters = [parameter for parameter in trace.parameters if parameter.kind == "parameter"]
    rows = []
    for call in trace.calls:
        own = [parameter for parameter in parameters if _is_below(parameter, call.path)]
        rows.append(
            SummaryRow(
                call=net.call_id(call),
                type=call.type,
                input=_shape(call.inputs),
                kernel=_kernel(call, own),
                output=_shape(call.outputs),
                params=sum(map(_count, own)),
                trainable=sum(_count(parameter) for parameter in own if parameter.requires_grad),
                macs=None if flops is None else flops[call.index].total.forward // 2,
                bytes=sum(map(_bytes, call.outputs or ())),
            )
        )
    trainable = sum(_count(parameter) for parameter in parameters if parameter.requires_grad)
    everything = sum(map(_count, parameters))
    size = sum(_bytes(parameter) for parameter in trace.parameters)
    totals: dict[str, tuple[Cell, Unit]] = {
        "parameters": (everything, ""),
        "trainable": (trainable, ""),
        "not trainable": (everything - trainable, ""),
        "mult-adds": (rows[0].macs, "MAC"),
        "size of parameters and buffers": (size, "B"),
        "size of inputs": (sum(map(_bytes, trace.root.inputs)), "B"),
        "size of all results": (sum(_bytes(value) for value in trace.values if value.name is None), "B"),
    }
    notes = () if flops is not None else (Note("no multiply-adds: the run was made with graph=False"),)
    return ReportData("summary", trace.model, COLUMNS, tuple(rows), totals, notes=notes, ranked=False)


def _is_below(parameter: Parameter, path: str) -> bool:
    return not path or any(name.startswith(f"{path}.") for name in parameter.names)


def _count(parameter: Parameter) -> int:
    return math.prod(parameter.shape)


def _bytes(item: Parameter | Value) -> int:
    return bytes_of(item.dtype, item.shape)


def _shape(items: object) -> str:
    values = list(items) if items is not None else []  # type: ignore[call-overload]
    return shape_text(values[0].shape) if values else ""


def _kernel(call: Call, own: list[Parameter]) -> str:
    """Return the sizes of a convolution's kernel: its weight beyond channels."""
    if "Conv" not in call.type or call.children:
        return ""
    weights = [p for p in own if p.name.rpartition(".")[2] == "weight" and len(p.shape) > 2]
    return shape_text(weights[0].shape[2:]) if weights else ""
