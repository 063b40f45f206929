"""Floating point operations of a run: per operation and per call, forward and backward, from shapes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fxdebug.analyses.reached_by_backward import Steps, reached_by_backward, steps_of
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.operators.flops import NONE, Flops, flops_of, fused_module_flops


@dataclass(frozen=True, slots=True)
class OpFlops:
    """The operations of one node of a call's graph; ``flops`` is ``None`` where they are not known."""

    node: str
    op: str
    flops: Flops | None


@dataclass(frozen=True, slots=True)
class CallFlops:
    """The operations of one call: of its own operations, and of all calls in it too.

    ``unknown`` counts the own operations, by name, that may have products and are not in ``own``.
    """

    call: Call
    own: Flops
    total: Flops
    unknown: Mapping[str, int]
    ops: tuple[OpFlops, ...] = ()


def count_flops(trace: TraceData) -> tuple[CallFlops, ...]:
    """Return the operations of every call, in execution order; neither the model nor torch is needed.

    The backward is that of a loss which depends on every tensor that the run returned.
    Raises ``UsageError`` for a run without graphs.
    """
    if trace.call_graphs is None:
        raise UsageError("this run has no graphs, and so no operations to count: trace it with graph=True")
    steps = [steps_of(call) for call in trace.calls]
    reached = reached_by_backward(trace, steps)
    own = [_own(trace, call, steps[call.index], reached) for call in trace.calls]
    totals = [flops for flops, _, _ in own]
    for call in reversed(trace.calls):  # children come after their parents
        if call.parent_index is not None:
            totals[call.parent_index] += totals[call.index]
    return tuple(
        [
            CallFlops(call, flops, totals[call.index], unknown, ops)
            for call, (flops, unknown, ops) in zip(trace.calls, own, strict=True)
        ]
    )


def _own(
    trace: TraceData, call: Call, steps: Steps | None, reached: set[int] | None
) -> tuple[Flops, Counter[str], tuple[OpFlops, ...]]:
    unknown: Counter[str] = Counter()
    if steps is None:
        flops = None if call.children else _fused(trace, call)
        if flops is None and not call.children:
            unknown[call.type] += 1
        return flops or NONE, unknown, ()
    counted: list[OpFlops] = []
    total = NONE
    for step in steps:
        op = step.op
        flops = flops_of(op.op, op.target if op.kind == "call_function" else op.op, step.result, step.args, step.kwargs)
        if flops is None:
            unknown[op.op] += 1
        else:
            if flops.backward and not (op.grad and (reached is None or reached & step.new)):
                flops = Flops(flops.forward)
            total += flops
        counted.append(OpFlops(op.name, op.op, flops))
    return total, unknown, tuple(counted)


def _fused(trace: TraceData, call: Call) -> Flops | None:
    """Return the operations of a module of torch that ran as one kernel, from the shapes of its parameters."""
    prefix = f"{call.path}." if call.path else ""
    shapes = {
        name.removeprefix(prefix): parameter.shape
        for parameter in trace.parameters
        for name in parameter.names
        if name.startswith(prefix)
    }
    return fused_module_flops(call.type, shapes, [value.shape for value in call.inputs])
