"""Golden files: one small file of a run for a repository, which later runs are compared with.

Its format is that of ``trace.json``, without anything that differs between two runs of the same model (times, threads,
the machine, source lines, addresses): the same run gives the same bytes.
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
from fxdebug.data.values import Inputs, Outputs, Stats, Thing, Value, rebuilt
from fxdebug.errors import SaveError
from fxdebug.files.write_file import write_bytes
from fxdebug.operators.dtypes import EPS
from fxdebug.store.trace_json import trace_file
from fxdebug.store.trace_json.samples import Samples, sample_tensor, shortest_decimal

# Dtypes with fewer than 9 digits: their means are rounded to 9.
NINE_DIGITS_SUFFICE = {*(name for name, eps in EPS.items() if eps >= EPS["float32"]), "float8_e8m0fnu"}
UNINITIALISED_OPS = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)

_PORTABLE_TEXT = re.compile(r"[\w.\[\], =()+:*'<>-]{0,120}")  # short and without paths; other texts are left out
_ADDRESS = re.compile(r"0x[0-9A-Fa-fX]+")


def save_golden(trace: TraceData, path: str | os.PathLike[str]) -> Path:
    """Write a golden trace for later comparisons: one small file, ``.json`` or ``.json.gz``; return its path.

    It holds statistics, graphs and, for a run with ``values="samples"``, a few elements of every value, but nothing
    that differs from one run to the next. ``load``, ``compare`` and ``fxdebug show`` read it. Raises ``SaveError``.

    >>> import torch, tempfile
    >>> from fxdebug import compare, fx_debug
    >>> model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     golden = save_golden(fx_debug(model, x, values="samples"), folder + "/linear.json")
    ...     compare(golden, fx_debug(model, x, values="samples")).equal
    True
    """
    path = Path(path)
    text = io.StringIO()
    trace_file.write(reduce_trace(trace), text, lean=True)
    data = text.getvalue().encode("utf-8", "surrogatepass")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        raise SaveError(f"cannot write to {path}: {error.strerror or error}") from error
    return path


def reduce_trace(trace: TraceData) -> TraceData:
    """Return a trace with only the facts that are the same in every run of the same model."""
    explanation = trace.call_graphs
    uninitialised = _uninitialised(trace, explanation)
    values = [_value(value, value.number in uninitialised) for value in trace.values]
    reducer = _Reducer(values)
    return TraceData(
        trace.model,
        tuple([reducer.call(call) for call in trace.calls]),
        tuple(values),
        tuple([_parameter(parameter) for parameter in trace.parameters]),
        trace.modules,
        versions=_versions(trace),
        settings={**trace.settings, "values": "samples", "golden": True},
        graph_source=None if explanation is None else reducer.explanation(explanation),
        data=_samples(trace, uninitialised),
    )


def _versions(trace: TraceData) -> dict[str, str]:
    """Return the versions that may explain a difference: torch, and transformers where the model's code is from there.

    That transformers is loaded in the process does not count: it may have nothing to do with the run.
    """
    lines = [(call.source or "").replace("\\", "/") for call in trace.calls]
    used = {"torch": True, "transformers": any("/transformers/" in line for line in lines)}
    return {name: trace.versions[name] for name, counts in used.items() if counts and name in trace.versions}


class _Reducer:
    """Replace the values in calls and graphs by those of the golden file."""

    def __init__(self, values: list[Value]) -> None:
        self._values = values

    def call(self, call: Call) -> Call:
        """Return a call without times, source lines and threads."""
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
        """Return the graphs without their code, their source lines, and reasons, which name source lines."""
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
        return rebuilt(item, self._leaf, lambda group, items: replace(group, items=items, text=None, number=None))

    def _leaf(self, item: Any) -> Any:
        if isinstance(item, Value):
            return self._values[item.number]
        return Thing(item.type, _text(item.text)) if isinstance(item, Thing) else item


def _text(text: str) -> str:
    """Return the text of an object if it is short and the same on every machine, else an empty text."""
    text = _ADDRESS.sub("0x…", text)
    return text if _PORTABLE_TEXT.fullmatch(text.replace("…", "")) else ""


def _uninitialised(trace: TraceData, explanation: RunGraphs | None) -> set[int]:
    """Return the numbers of values whose memory was never written: results of ``empty``, and values with equal content.

    A value that an operation wrote is initialised, even if the memory happened to hold the same numbers before.
    """
    empty, written = [], set()
    for body in () if explanation is None else explanation.bodies:
        ops = () if explanation is None or body.graph is None else explanation.graphs[body.graph].ops
        empty += [item for op, item in zip(ops, body.results) if op.op in UNINITIALISED_OPS and isinstance(item, Value)]
        written |= {value.number for _, value in body.writes}
    content = {(value.storage, value.stats) for value in empty if value.storage is not None}
    same = {value.number for value in trace.values if content and (value.storage, value.stats) in content}
    return {value.number for value in empty} | (same - written)


def _value(value: Value, uninitialised: bool) -> Value:
    stats = None if value.stats is None or uninitialised else _stats(value.stats, value.dtype)
    return replace(
        value,
        stride=None,
        offset=0,
        requires_grad=False,
        stats=stats,
        saved=None,
        digest=None,
        type="Tensor" if value.type == "Parameter" else value.type,
    )


def _parameter(parameter: Parameter) -> Parameter:
    stats = None if parameter.stats is None else _stats(parameter.stats, parameter.dtype)
    return replace(parameter, before=None, stats=stats, storage=None, sums=None)


def _stats(stats: Stats, dtype: str) -> Stats:
    """Round means and deviations to more digits than the dtype has, extremes to the fewest that are read the same."""
    digits = 9 if dtype in NINE_DIGITS_SUFFICE else 17
    return replace(
        stats,
        mean=_rounded(stats.mean, digits),
        std=_rounded(stats.std, digits),
        min=_shortest(stats.min, dtype),
        max=_shortest(stats.max, dtype),
        absmax=_shortest(stats.absmax, dtype),
    )


def _rounded(number: Any, digits: int) -> Any:
    if isinstance(number, complex):
        return complex(_rounded(number.real, digits), _rounded(number.imag, digits))
    return float(f"{number:.{digits}g}") if isinstance(number, float) and math.isfinite(number) else number


def _shortest(number: Any, dtype: str) -> Any:
    if not isinstance(number, float):
        return number
    short = shortest_decimal(number, dtype)
    return int(short) if short.is_integer() and abs(short) < 1e9 and math.copysign(1, short) > 0 else short


def _samples(trace: TraceData, uninitialised: set[int]) -> Samples:
    """Return the samples that the run took; if it kept whole tensors, samples of those."""
    samples, taken = Samples(), getattr(trace.data, "samples", None)
    if isinstance(taken, Mapping):
        samples.samples = {number: row for number, row in taken.items() if number not in uninitialised}
    else:
        for value in trace.values:
            if value.saved is not None and value.number not in uninitialised:
                row = sample_tensor(trace.tensor(value))
                if row is not None:
                    samples.samples[value.number] = row
    return samples
