"""A model at a glance: shapes, parameters, multiply-adds and sizes of every call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fxdebug.analyses.cost.flops import count_flops
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

    ``params``, ``trainable``, ``share`` and ``macs`` are with all modules and calls in it; ``share`` is in % of the
    model's parameters; ``bytes`` is the size of its results.
    """

    call: str
    type: str
    input: str
    kernel: str
    output: str
    params: int
    share: float | None
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
    Column("share", "share", "%", "of the model's parameters", adds=True),
    Column("trainable", "trainable", "", "of the parameters, those with a gradient", adds=True, shown=False),
    Column("macs", "mult-adds", "MAC", "with all calls in it", adds=True),
    Column("bytes", "size", "B", "of its results", adds=True, shown=False),
)


def summary_report(trace: TraceData) -> ReportData[SummaryRow]:
    """Return the calls of a run in execution order, with the totals that torchinfo shows.

    A parameter that several modules share counts once in a total. ``forward and backward pass`` is, as in torchinfo,
    twice the results of all calls of modules with parameters and without calls in them: an estimate of what is kept for
    the backward, and of its gradients. What a run really takes, :func:`fxdebug.memory` measures.
    """
    net = network_of(trace)
    flops = count_flops(trace) if trace.call_graphs is not None else None
    below = _parameters_below(trace)
    everything = _count(below.get("", []))
    rows = []
    for call in trace.calls:
        own = below.get(call.path, [])
        params = _count(own)
        rows.append(
            SummaryRow(
                call=net.call_id(call),
                type=call.type,
                input=_shape(call.inputs),
                kernel=kernel_text(call, own),
                output=_shape(call.outputs),
                params=params,
                share=100 * params / everything if everything else None,
                trainable=_count(own, trainable=True),
                macs=None if flops is None else flops[call.index].total.forward // 2,
                bytes=sum(map(_bytes, call.outputs or ())),
            )
        )
    leaves = [row.bytes for row, call in zip(rows, trace.calls) if row.params and not call.children]
    notes = (
        [] if flops is not None else [Note("no multiply-adds: the run has no operations (trace it with graph=True)")]
    )
    if trace.error is not None:
        notes.append(Note(f"the run raised {trace.error.type}: these are the calls until then"))
    return ReportData(
        analysis="summary",
        subject=trace.model,
        columns=COLUMNS,
        rows=tuple(rows),
        totals=_totals(trace, below.get("", []), rows[0].macs, 2 * sum(leaves)),
        notes=tuple(notes),
        ranked=False,
    )


def _totals(
    trace: TraceData, parameters: list[Parameter], macs: int | None, activations: int
) -> dict[str, tuple[Cell, Unit]]:
    everything, trainable = _count(parameters), _count(parameters, trainable=True)
    inputs, size = sum(map(_bytes, trace.root.inputs)), sum(map(_bytes, parameters))
    buffers = sum(_bytes(parameter) for parameter in trace.parameters if parameter.kind != "parameter")
    return {
        "parameters": (everything, ""),
        "trainable": (trainable, ""),
        "not trainable": (everything - trainable, ""),
        "mult-adds": (macs, "MAC"),
        "size of inputs": (inputs, "B"),
        "forward and backward pass": (activations, "B"),
        "size of parameters": (size, "B"),
        "size of buffers": (buffers, "B"),
        "estimated total size": (inputs + activations + size + buffers, "B"),
    }


def _parameters_below(trace: TraceData) -> dict[str, list[Parameter]]:
    """Return the parameters of every module and of all modules in it, by the module's path."""
    below: dict[str, list[Parameter]] = {}
    for parameter in trace.parameters:
        if parameter.kind != "parameter":
            continue
        paths = {""}
        for name in parameter.names:
            parts = name.split(".")
            paths.update(".".join(parts[:end]) for end in range(1, len(parts)))
        for path in paths:
            below.setdefault(path, []).append(parameter)
    return below


def _count(parameters: Iterable[Parameter], *, trainable: bool = False) -> int:
    return sum(math.prod(parameter.shape) for parameter in parameters if parameter.requires_grad or not trainable)


def _bytes(item: Parameter | Value) -> int:
    return bytes_of(item.dtype, item.shape)


def _shape(items: object) -> str:
    values = list(items) if items is not None else []  # type: ignore[call-overload]
    return shape_text(values[0].shape) if values else ""


def kernel_text(call: Call, own: list[Parameter]) -> str:
    """Return the sizes of a convolution's kernel: its weight beyond channels."""
    if "Conv" not in call.type or call.children:
        return ""
    weights = [p for p in own if p.name.rpartition(".")[2] == "weight" and len(p.shape) > 2]
    return shape_text(weights[0].shape[2:]) if weights else ""
