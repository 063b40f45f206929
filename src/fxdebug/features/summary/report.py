"""A model at a glance: shapes, parameters, multiply-adds and sizes of every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fxdebug.analyses.cost.flops import bound, count_flops, counted_names, not_counted
from fxdebug.data.calls import Call, Note, Parameter
from fxdebug.data.measures import Unit, counted
from fxdebug.data.report import Cell, Column, ReportData, Shared
from fxdebug.data.trace import TraceData
from fxdebug.data.values import shape_text
from fxdebug.exports.columns import kernel_text
from fxdebug.operators.dtypes import bytes_of
from fxdebug.query.measures import UNREGISTERED, parameters_below, parameters_in, size_of
from fxdebug.query.network import network_of


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One call: shapes of its first input, of its kernel and of its first output; its parameters and multiply-adds.

    ``params``, ``trainable``, ``share`` and ``macs`` are with all modules and calls in it; ``share`` is in % of the
    model's parameters; ``bytes`` is the size of its results. ``macs`` is a lower bound where ``unknown`` names
    operations that are not counted. A number of which nothing is known is ``None``.
    """

    call: str
    type: str
    input: str
    kernel: str
    output: str
    params: int | None
    share: float | None
    trainable: int | None
    macs: int | None
    bytes: int | None
    unknown: str


COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("input", "input", shown=False),
    Column("kernel", "kernel"),
    Column("output", "output"),
    Column("params", "params", "", "with all modules in it", adds=True),
    Column("share", "share", "%", "of the model's parameters", adds=True),
    Column("trainable", "trainable", "", "of the parameters, those with a gradient", adds=True, shown=False),
    Column("macs", "mult-adds", "MAC", "with all calls in it", adds=True, at_least="unknown"),
    Column("bytes", "size", "B", "of its results", adds=True, shown=False),
    Column("unknown", "not counted", "", "operations in it with an unknown number", shown=False),
)


def summary_report(trace: TraceData) -> ReportData[SummaryRow]:
    """Return the calls of a run in execution order, with the totals that torchinfo shows.

    A parameter that several modules share counts once, in a total and in each call. ``forward and backward pass`` is,
    as in torchinfo, twice the results of all calls of modules with parameters and without calls in them: an estimate of
    what is kept for the backward, and of its gradients. What a run really takes, :func:`fxdebug.memory` measures.
    """
    net = network_of(trace)
    flops = count_flops(trace) if trace.call_graphs is not None else None
    below = parameters_below(trace)
    everything = _elements(trace, below.get("", ()))
    rows, of = [], {}
    for call in trace.calls:
        own = sorted(below.get(call.path, ()))
        known = parameters_in(trace, [call], "params") is not None
        params = _elements(trace, own)
        count = None if flops is None else flops[call.index]
        of[net.call_id(call)] = tuple(own)
        rows.append(
            SummaryRow(
                call=net.call_id(call),
                type=call.type,
                input=_shape(call.inputs),
                kernel=kernel_text(call, [trace.parameters[number] for number in own]),
                output=_shape(call.outputs),
                params=params if known else None,
                share=100 * params / everything if everything and known else None,
                trainable=_elements(trace, own, trainable=True) if known else None,
                macs=None if count is None else bound(count.total.forward // 2, count.inside),
                bytes=_sum(size_of(value) for value in call.outputs or ())[0],
                unknown="" if count is None else counted_names(count.inside),
            )
        )
    leaves = [call for row, call in zip(rows, trace.calls) if row.params and not call.children]
    missing = {} if flops is None else flops[0].inside
    totals, at_least = _totals(trace, leaves, rows[0].macs, bool(missing))
    return ReportData(
        analysis="summary",
        subject=trace.model,
        columns=COLUMNS,
        rows=tuple(rows),
        totals=totals,
        notes=tuple(_notes(trace, missing)),
        ranked=False,
        at_least=at_least,
        shared=Shared(of, _pieces(trace, everything)),
    )


def _notes(trace: TraceData, missing: Mapping[str, int]) -> list[Note]:
    notes = not_counted(missing)
    if trace.call_graphs is None:
        notes.append(Note("no multiply-adds: the run has no operations (trace it with graph=True)"))
    homeless = list(dict.fromkeys(call.path for call in trace.calls if call.origin in UNREGISTERED))
    if homeless:
        some = ", ".join(homeless[:3]) + (", …" if len(homeless) > 3 else "")
        notes.append(Note(f"parameters of modules that are registered nowhere are not counted: {some}"))
    lazy = [one.name for one in trace.parameters if one.kind == "parameter" and one.elements is None]
    if lazy:
        some = ", ".join(lazy[:3]) + (", …" if len(lazy) > 3 else "")
        notes.append(Note(f"parameters of lazy modules that never ran are not counted: {some}"))
    if any(parameter.sharding is not None for parameter in trace.parameters):
        notes.append(
            Note("parameters are distributed over ranks: they are counted as a whole, operations of this rank")
        )
    if any(".quantized." in op.target for graph in trace.graphs for op in graph.ops):
        notes.append(Note("weights of quantised layers are packed: they are no parameters, and are not counted"))
    unsized = sum(size_of(value) is None for value in trace.values)
    if unsized:
        notes.append(Note(f"sizes: n/a of {counted(unsized, 'tensor')} (sparse, or of unknown length)"))
    if trace.error is not None:
        notes.append(Note(f"the run raised {trace.error.type}: these are the calls until then"))
    return notes


def _totals(
    trace: TraceData, leaves: Iterable[Call], macs: int | None, is_bound: bool
) -> tuple[dict[str, tuple[Cell, Unit]], tuple[str, ...]]:
    """Return the totals, and which of them are lower bounds; ``is_bound``: are there operations that do not count?"""
    numbers = range(len(trace.parameters))
    parameters = [number for number in numbers if trace.parameters[number].kind == "parameter"]
    everything, trainable = _elements(trace, parameters), _elements(trace, parameters, trainable=True)
    activations, some = _sum(size_of(value) for call in leaves for value in call.outputs or ())
    sizes: dict[str, tuple[int | None, bool]] = {
        "size of inputs": _sum(size_of(value) for value in trace.root.inputs),
        "forward and backward pass": (None if activations is None else 2 * activations, some),
        "size of parameters": _sum(_bytes(one) for one in trace.parameters if one.kind == "parameter"),
        "size of buffers": _sum(_bytes(one) for one in trace.parameters if one.kind != "parameter"),
    }
    whole, _ = _sum(size for size, _ in sizes.values())
    sizes["estimated total size"] = whole, any(some for _, some in sizes.values())
    totals: dict[str, tuple[Cell, Unit]] = {
        "parameters": (everything, ""),
        "trainable": (trainable, ""),
        "not trainable": (everything - trainable, ""),
        "mult-adds": (macs, "MAC"),
    }
    for heading, (size, _) in sizes.items():
        totals[heading] = size, "B"
    lazy = any(trace.parameters[number].elements is None for number in parameters)
    counts = ("parameters", "trainable") if lazy else ()
    return totals, (*counts, *["mult-adds"] * is_bound, *(heading for heading, (_, some) in sizes.items() if some))


def _sum(sizes: Iterable[int | None]) -> tuple[int | None, bool]:
    """Return the sum of what is known, ``None`` if that is nothing of something, and whether something is missing.

    >>> _sum([4, None]), _sum([None]), _sum([])
    ((4, True), (None, True), (0, False))
    """
    listed = list(sizes)
    known = [size for size in listed if size is not None]
    return (sum(known) if known or not listed else None), len(known) < len(listed)


def _elements(trace: TraceData, numbers: Iterable[int], *, trainable: bool = False) -> int:
    """Return the elements of some parameters, as far as they have a shape."""
    found = [trace.parameters[number] for number in numbers]
    return sum(one.elements or 0 for one in found if one.requires_grad or not trainable)


def _pieces(trace: TraceData, everything: int) -> dict[str, tuple[float, ...]]:
    """Return what each parameter adds to a line for several calls, by the field of the column."""
    sizes = [one.elements or 0 for one in trace.parameters]
    return {
        "params": tuple(sizes),
        "share": tuple([100 * size / everything if everything else 0.0 for size in sizes]),
        "trainable": tuple([size * one.requires_grad for size, one in zip(sizes, trace.parameters)]),
    }


def _bytes(parameter: Parameter) -> int | None:
    return None if parameter.elements is None else bytes_of(parameter.dtype, (parameter.elements,))


def _shape(items: object) -> str:
    values = list(items) if items is not None else []  # type: ignore[call-overload]
    return shape_text(values[0].shape) if values else ""
