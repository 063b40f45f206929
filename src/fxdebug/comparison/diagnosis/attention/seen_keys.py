"""Count the keys that the last position attends to, where a run of one position stands beside one of several.

A step of decoding whose cache is one key short, or one too long, shows in the result of attention alone: there nothing
else differs from the run over all positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fxdebug.comparison.build_steps import steps_of
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.result import Row
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import MASK
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value

if TYPE_CHECKING:
    from torch import Tensor


def with_seen_keys(findings: Iterable[Row], meter: Meter) -> Iterator[Row]:
    """Yield findings; those of calls whose last positions attend to other numbers of keys say so."""
    if meter.facing is None or meter.facing.by != "cache":
        yield from findings
        return
    runs: tuple[StepList, StepList] | None = None
    for row in findings:
        if row.kind == "values" and row.a is not None and row.b is not None:
            runs = runs or (steps_of(meter.a, graphs=True), steps_of(meter.b, graphs=True))
            counts = _seen_in(runs[0], row.a.call), _seen_in(runs[1], row.b.call)
            if None not in counts and counts[0] != counts[1]:
                because = f"its last position attends to {counts[0]} keys in a, to {counts[1]} in b"
                row = replace(row, because=because)
        yield row


def _seen_in(run: StepList, call: Call) -> int | None:
    """Return how many keys the last position sees in the first attention of a call; ``None`` where none can tell."""
    for inner in call.walk():
        for step in run.by_call.get(inner.index, ()):
            if step.name in ("scaled_dot_product_attention", "softmax"):
                return _seen_by(run.trace, step)
    return None


def _seen_by(trace: TraceData, step: Step) -> int | None:
    if step.name == "softmax":
        weights = _last_row(trace, step.outputs[0]) if step.outputs else None
        return None if weights is None else int((weights > 0).sum())
    query, key, *_ = [given.value for given in step.data]
    mask = next((given.value for given in step.data[3:]), None)
    if mask is None:
        is_causal = any(text in ("is_causal=True", "True") for text in step.constants)
        return min(query.shape[-2], key.shape[-2]) if is_causal else key.shape[-2]
    seen = _last_row(trace, mask)
    if seen is None:
        return None
    return int(seen.sum() if mask.dtype == "bool" else (seen > -MASK).sum())


def _last_row(trace: TraceData, value: Value) -> Tensor | None:
    """Return the last row of a matrix of the first item and head; ``None`` without its data."""
    if value.saved is None or len(value.shape) < 2:
        return None
    try:
        data = trace.tensor(value)
    except Exception:  # deleted since, or written by a newer version
        return None
    return data.reshape(-1, *value.shape[-2:])[0, -1]
