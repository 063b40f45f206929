"""Floating point operations of a run: per operation and per call, forward and backward, from shapes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fxdebug.analyses.cost.reached_by_backward import Steps, reached_by_backward, steps_of
from fxdebug.data.calls import Call, Note
from fxdebug.data.measures import CALL, OPERATION, Unit, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.operators.flops import NONE, ONLY_CALLS_MODULES, Flops, flops_of, fused_module_flops
from fxdebug.query.network import network_of

FLOPS = register("flops", "FLOP", "floating point operations of products, forward", [CALL, OPERATION], adds=True)
OWN = "floating point operations of the call itself, without calls in it, or of the operation"
SELF = register("flops.self", "FLOP", OWN, [CALL, OPERATION], adds=True, own=True)
BACKWARD = register(
    "flops.backward", "FLOP", "floating point operations of the backward pass", [CALL, OPERATION], adds=True
)


@dataclass(frozen=True, slots=True)
class FlopsRow:
    """The operations of one call, of its own operations and with all calls in it; ``share`` is in % of the run.

    ``own`` is a lower bound where ``unknown`` names operations of the call that could not be counted, ``forward`` and
    ``backward`` where ``inside`` names some, of it and of all calls in it; ``None`` where nothing else was counted.
    """

    call: str
    type: str
    own: int | None
    share: float | None
    forward: int | None
    backward: int | None
    unknown: str
    inside: str


COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column(
        "own",
        "self",
        "FLOP",
        "of the call's own operations, without calls in it, forward",
        adds=True,
        at_least="unknown",
    ),
    Column("share", "share", "%", "self as a share of all that was counted in the run", adds=True),
    Column("forward", "forward", "FLOP", "with all calls in it", adds=True, at_least="inside"),
    Column(
        "backward",
        "backward",
        "FLOP",
        "with all calls in it; 0 where no gradient is asked for",
        adds=True,
        at_least="inside",
    ),
    Column("unknown", "not counted", "", "operations with an unknown number, and how many of each"),
    Column("inside", "not counted inside", "", "the same, with those of all calls in it", shown=False),
)


def flops_report(trace: TraceData) -> ReportData[FlopsRow]:
    """Return the operations of every call, those with the most first; neither the model nor torch is needed.

    A product of an m×k with a k×n matrix counts 2·m·k·n, as in ``torch.utils.flop_counter``; see
    :mod:`fxdebug.operators.flops`. Raises ``UsageError`` for a run without graphs.
    """
    counts = count_flops(trace)
    net = network_of(trace)
    root = counts[0].total
    rows = [
        FlopsRow(
            call=net.call_id(count.call),
            type=count.call.type,
            own=bound(count.own.forward, count.unknown),
            share=100 * count.own.forward / root.forward if root.forward else None,
            forward=bound(count.total.forward, count.inside),
            backward=bound(count.total.backward, count.inside),
            unknown=counted_names(count.unknown),
            inside=counted_names(count.inside),
        )
        for count in counts
    ]
    missing, grad = counts[0].inside, any(call.grad for call in trace.calls)
    totals: dict[str, tuple[Cell, Unit]] = {
        "forward": (bound(root.forward, missing), "FLOP"),
        "multiply-adds": (bound(root.forward // 2, missing), "MAC"),
        "backward": (bound(root.backward, missing) if grad else None, "FLOP"),
    }
    notes = not_counted(missing)
    if not grad:
        notes.append(Note("backward: n/a, the run was made without gradients"))
    if trace.error is not None:
        notes.append(Note("the run raised: these are the operations until then"))
    ops = [(op.node, op.flops) for count in counts for op in count.ops if op.flops is not None]
    forward, backward = {id: op.forward for id, op in ops}, {id: op.backward for id, op in ops}
    known = [(net.call_id(count.call), count) for count in counts if not count.inside]
    alone = [(net.call_id(count.call), count) for count in counts if not count.unknown]
    return ReportData(
        analysis="flops",
        subject=trace.model,
        columns=COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: (row.own is None, -(row.own or 0)))),
        totals=totals,
        notes=tuple(notes),
        measures={
            FLOPS.name: {id: count.total.forward for id, count in known} | forward,
            SELF.name: {id: count.own.forward for id, count in alone} | forward,
            BACKWARD.name: {id: count.total.backward for id, count in known} | backward,
        },
        ranked_by=("own",),
        at_least=tuple(totals) if missing else (),
    )


def bound(number: int, missing: Mapping[str, int]) -> int | None:
    """Return a number of which something is missing as a lower bound; ``None`` where nothing was counted at all."""
    return None if missing and not number else number


def not_counted(missing: Mapping[str, int]) -> list[Note]:
    """Return a note on operations whose number is not known, where there are some."""
    return [Note(f"not counted, because their number is not known: {counted_names(missing)}")] if missing else []


def counted_names(unknown: Mapping[str, int]) -> str:
    """Return the names of operations that are not counted, with how many of each there are.

    >>> counted_names({"svd": 2, "Fused": 1})
    'svd ×2, Fused'
    """
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in unknown.items())


@dataclass(frozen=True, slots=True)
class OpFlops:
    """The operations of one node of a call's graph; ``flops`` is ``None`` where they are not known."""

    node: str
    op: str
    flops: Flops | None


@dataclass(frozen=True, slots=True)
class CallFlops:
    """The operations of one call: of its own operations, and of all calls in it too.

    ``unknown`` counts the own operations, by name, that may have products and are not in ``own``, ``inside`` those of
    all calls in it too, which are not in ``total``.
    """

    call: Call
    own: Flops
    total: Flops
    unknown: Mapping[str, int]
    inside: Mapping[str, int]
    ops: tuple[OpFlops, ...] = ()


def count_flops(trace: TraceData) -> tuple[CallFlops, ...]:
    """Return the operations of every call, in execution order; neither the model nor torch is needed.

    The backward is that of a loss which depends on every tensor that the run returned.
    Raises ``UsageError`` for a run without graphs.
    """
    if trace.call_graphs is None:
        raise UsageError("flops needs operations, and this run has none: trace it with graph=True")
    steps = [steps_of(call) for call in trace.calls]
    reached = reached_by_backward(trace, steps)
    own = [_own(trace, call, steps[call.index], reached) for call in trace.calls]
    totals, inside = [flops for flops, _, _ in own], [Counter(unknown) for _, unknown, _ in own]
    for call in reversed(trace.calls):  # children come after their parents
        if call.parent_index is not None:
            totals[call.parent_index] += totals[call.index]
            inside[call.parent_index] += inside[call.index]
    return tuple(
        [
            CallFlops(call, flops, totals[call.index], unknown, inside[call.index], ops)
            for call, (flops, unknown, ops) in zip(trace.calls, own, strict=True)
        ]
    )


def _own(
    trace: TraceData, call: Call, steps: Steps | None, reached: set[int] | None
) -> tuple[Flops, Counter[str], tuple[OpFlops, ...]]:
    unknown: Counter[str] = Counter()
    prefix = network_of(trace).call_id(call)
    if steps is None:
        flops = _fused(trace, call)
        if flops is None and call.error is None:
            unknown[f"{call.type}'s own operations" if call.children else call.type] += 1
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
        counted.append(OpFlops(f"{prefix}/{op.name}", op.op, flops))
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
    if call.children:  # their operations are counted with them
        return NONE if call.type in ONLY_CALLS_MODULES else None
    return fused_module_flops(call.type, shapes, [value.shape for value in call.inputs])
