"""Golden runs: one small file of a run that later ones are compared with, made to lie in a repository.

It is a ``trace.json`` without what differs from time to time (when, how long, on which machine, in which line of
which file) and without what can be made again: the same run gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fxdebug.data.calls import Call, Parameter
from fxdebug.data.graphs import CallGraph, Graph, Op, RunGraphs
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Inputs, Outputs, Stats, Thing, Value
from fxdebug.errors import SaveError
from fxdebug.operators.dtypes import EPS
from fxdebug.store.trace_json import trace_file
from fxdebug.store.trace_json.samples import Samples, sampled, shortest

# 9 digits of a mean are more than these have.
NARROW = {*(name for name, eps in EPS.items() if eps >= EPS["float32"]), "float8_e8m0fnu"}
EMPTY = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))

_TELLING = re.compile(r"[\w.\[\], =()+:*'<>-]{0,120}")  # a short text without paths, or else the class must do
_ADDRESS = re.compile(r"0x[0-9A-Fa-fX]+")


def write(trace: TraceData, path: Path) -> Path:
    """Write the golden file of a run, gzipped if it ends in ``.gz``. Raises :class:`SaveError`."""
    text = io.StringIO()
    trace_file.write(reduced(trace), text, lean=True)
    data = text.getvalue().encode("utf-8", "surrogatepass")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name[:200]}.{os.getpid()}")
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        raise SaveError(f"cannot write to {path}: {error.strerror or error}") from error
    return path


def reduced(trace: TraceData) -> TraceData:
    """What of a trace stays the same from run to run, as long as the model does."""
    explanation = trace.call_graphs
    arbitrary = _uninitialised(trace, explanation)
    values = [_value(value, value.number in arbitrary) for value in trace.values]
    remade = _Remade(values)
    return TraceData(
        trace.model,
        tuple([remade.call(call) for call in trace.calls]),
        tuple(values),
        tuple([_parameter(parameter) for parameter in trace.parameters]),
        trace.modules,
        versions=_versions(trace),
        settings={**trace.settings, "values": "samples", "golden": True},
        graph_source=None if explanation is None else remade.explanation(explanation),
        data=_samples(trace, arbitrary),
    )


def _versions(trace: TraceData) -> dict[str, str]:
    """Those that may explain a difference: torch's, and transformers' where the model's code is from there.

    Whether somebody else in the process has loaded it says nothing about the run.
    """
    lines = [(call.source or "").replace("\\", "/") for call in trace.calls]
    used = {"torch": True, "transformers": any("/transformers/" in line for line in lines)}
    return {name: trace.versions[name] for name, counts in used.items() if counts and name in trace.versions}


class _Remade:
    """Calls, bodies and graphs of the values as they are in the golden file."""

    def __init__(self, values: list[Value]) -> None:
        self._values = values

    def call(self, call: Call) -> Call:
        """Without times, lines and threads."""
        return replace(
            call,
            inputs=self._inputs(call.inputs),
            outputs=self._outputs(call.outputs),
            given=None if call.given is None else self._inputs(call.given),
            returned=self._outputs(call.returned),
            error=None if call.error is None else replace(call.error, traceback=None, source=None),
            source=None,
            duration=0.0,
            aliases=() if call.aliases == (call.path,) else call.aliases,
        )

    def explanation(self, explanation: RunGraphs) -> RunGraphs:
        """Without the text of the graphs, the lines they are from and the reasons, which name lines."""
        return RunGraphs(
            tuple([self._graph(graph) for graph in explanation.graphs]),
            tuple([self._body(body) for body in explanation.bodies]),
        )

    def _body(self, body: CallGraph) -> CallGraph:
        return replace(
            body,
            reason="",
            guards=(),
            results=tuple([self._item(item) for item in body.results]),
            sources=(None,) * len(body.results),
            writes=tuple([(position, self._values[value.number]) for position, value in body.writes]),
        )

    def _graph(self, graph: Graph) -> Graph:
        return Graph(tuple([self._op(op) for op in graph.ops]))

    def _op(self, op: Op) -> Op:
        args = tuple([self._item(arg) for arg in op.args])
        return replace(op, args=args, kwargs={name: self._item(arg) for name, arg in op.kwargs.items()})

    def _inputs(self, inputs: Inputs) -> Inputs:
        return Inputs(
            tuple([self._item(item) for item in inputs.args]),
            {name: self._item(item) for name, item in inputs.kwargs.items()},
        )

    def _outputs(self, outputs: Outputs | None) -> Outputs | None:
        return None if outputs is None else Outputs(self._item(outputs.item))

    def _item(self, item: Any) -> Any:
        if isinstance(item, Value):
            return self._values[item.number]
        if isinstance(item, Group):
            return replace(item, items=tuple([self._item(inner) for inner in item.items]), text=None, number=None)
        if isinstance(item, Thing):
            return Thing(item.type, _text(item.text))
        return item


def _text(text: str) -> str:
    """What an object shows, if it is short and the same on every machine."""
    text = _ADDRESS.sub("0x…", text)
    return text if _TELLING.fullmatch(text.replace("…", "")) else ""


def _uninitialised(trace: TraceData, explanation: RunGraphs | None) -> set[int]:
    """The numbers of values that hold what happened to be in memory: results of ``empty``, and those as they were.

    What has been written is known, even where the memory happened to hold the very same before.
    """
    made, written = [], set()
    for body in () if explanation is None else explanation.bodies:
        ops = () if explanation is None or body.graph is None else explanation.graphs[body.graph].ops
        made += [item for op, item in zip(ops, body.results) if op.op in EMPTY and isinstance(item, Value)]
        written |= {value.number for _, value in body.writes}
    seen = {(value.storage, value.stats) for value in made if value.storage is not None}
    same = {value.number for value in trace.values if seen and (value.storage, value.stats) in seen}
    return {value.number for value in made} | (same - written)


def _value(value: Value, arbitrary: bool) -> Value:
    stats = None if value.stats is None or arbitrary else _stats(value.stats, value.dtype)
    return replace(
        value, stride=None, offset=0, requires_grad=False, stats=stats, saved=None, digest=None,
        type="Tensor" if value.type == "Parameter" else value.type,
    )  # fmt: skip


def _parameter(parameter: Parameter) -> Parameter:
    stats = None if parameter.stats is None else _stats(parameter.stats, parameter.dtype)
    return replace(parameter, before=None, stats=stats, storage=None)


def _stats(stats: Stats, dtype: str) -> Stats:
    """Means and deviations in more digits than the dtype has, extremes in as many as lead back to the same number."""
    digits = 9 if dtype in NARROW else 17
    return replace(
        stats,
        mean=_rounded(stats.mean, digits),
        std=_rounded(stats.std, digits),
        min=_exact(stats.min, dtype),
        max=_exact(stats.max, dtype),
        absmax=_exact(stats.absmax, dtype),
    )


def _rounded(number: Any, digits: int) -> Any:
    if isinstance(number, complex):
        return complex(_rounded(number.real, digits), _rounded(number.imag, digits))
    return float(f"{number:.{digits}g}") if isinstance(number, float) and math.isfinite(number) else number


def _exact(number: Any, dtype: str) -> Any:
    if not isinstance(number, float):
        return number
    short = shortest(number, dtype)
    return int(short) if short.is_integer() and abs(short) < 1e9 and math.copysign(1, short) > 0 else short


def _samples(trace: TraceData, arbitrary: set[int]) -> Samples:
    """The samples the run took; where it kept whole tensors, from those."""
    found, known = Samples(), getattr(trace.data, "samples", None)
    if isinstance(known, Mapping):
        found.samples = {number: row for number, row in known.items() if number not in arbitrary}
    else:
        for value in trace.values:
            if value.saved is not None and value.number not in arbitrary:
                row = sampled(trace.tensor(value))
                if row is not None:
                    found.samples[value.number] = row
    return found
