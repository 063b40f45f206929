"""Floating point operations of a run: per operation and per call, forward and backward, from shapes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fxdebug.analyses.cost.reached_by_backward import Step, Steps, concealed_gradients, reached_by_backward, steps_of
from fxdebug.data.calls import Call, Note
from fxdebug.data.measures import CALL, OPERATION, Unit, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Value
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
    """Floating point operations of one call, without and with the calls inside it; ``share`` is in % of the run.

    ``own`` is a lower bound where ``unknown`` names operations of the call that could not be counted, ``forward`` where
    ``inside`` names some, of it and of all calls in it, and ``backward`` where ``behind`` does, which also has those of
    which only the backward is not known. Such a number is ``None`` where nothing else was counted.
    """

    call: str
    type: str
    own: int | None
    share: float | None
    forward: int | None
    backward: int | None
    unknown: str
    inside: str
    behind: str


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
        at_least="behind",
    ),
    Column("unknown", "not counted", "", "operations with an unknown number, and how many of each"),
    Column("inside", "not counted inside", "", "the same, with those of all calls in it", shown=False),
    Column("behind", "not counted in the backward", "", "the same, with those whose backward is unknown", shown=False),
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
            own=own,
            share=100 * own / root.forward if root.forward and own is not None else None,
            forward=bound(count.total.forward, count.inside),
            backward=bound(count.total.backward, count.behind),
            unknown=counted_names(count.unknown),
            inside=counted_names(count.inside),
            behind=counted_names(count.behind),
        )
        for count, own in [(count, bound(count.own.forward, count.unknown)) for count in counts]
    ]
    missing, behind, grad = counts[0].inside, counts[0].behind, any(call.grad for call in trace.calls)
    totals: dict[str, tuple[Cell, Unit]] = {
        "forward": (bound(root.forward, missing), "FLOP"),
        "multiply-adds": (bound(root.forward // 2, missing), "MAC"),
        "backward": (bound(root.backward, behind) if grad else None, "FLOP"),
    }
    notes = not_counted(missing)
    if grad and (only := Counter(behind) - Counter(missing)):
        what = (
            f"not counted in the backward: {counted_names(only)}, in functions of autograd with a backward of their own"
        )
        notes.append(Note(what))
    if not grad:
        notes.append(Note("backward: n/a, the run was made without gradients"))
    if trace.error is not None:
        notes.append(Note("the run raised: these are the operations until then"))
    ops = [(op.node, op.flops) for count in counts for op in count.ops if op.flops is not None]
    forward = {id: op.forward for id, op in ops}
    backward = {op.node: op.flops.backward for count in counts for op in count.ops if op.flops and not op.is_forward}
    led = [(net.call_id(count.call), count) for count in counts if not count.behind]
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
            BACKWARD.name: {id: count.total.backward for id, count in led} | backward,
        },
        ranked_by=("own",),
        at_least=(*(("forward", "multiply-adds") if missing else ()), *(["backward"] if behind else [])),
    )


def bound(number: int, missing: Mapping[str, int]) -> int | None:
    """Return a total with missing parts as a lower bound; ``None`` where nothing was counted."""
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
    """The operations of one node of a call's graph; ``flops`` is ``None`` where they are not known.

    ``is_forward``: only those of the forward are known.
    """

    node: str
    op: str
    flops: Flops | None
    is_forward: bool = False


@dataclass(frozen=True, slots=True)
class CallFlops:
    """Floating point operations of one call, without and with the calls inside it.

    ``unknown`` counts the own operations, by name, that may have products and are not in ``own``, ``inside`` those of
    all calls in it too, which are not in ``total``. ``behind`` counts those whose backward is not in ``total``: the
    same, and those in the forward of a ``torch.autograd.Function``, whose backward is code of its own.
    """

    call: Call
    own: Flops
    total: Flops
    unknown: Mapping[str, int]
    inside: Mapping[str, int]
    behind: Mapping[str, int]
    ops: tuple[OpFlops, ...] = ()


def count_flops(trace: TraceData) -> tuple[CallFlops, ...]:
    """Return the operations of every call, in execution order; neither the model nor torch is needed.

    The backward is that of a loss which depends on every tensor that the run returned.
    Raises ``UsageError`` for a run without graphs.
    """
    if trace.call_graphs is None:
        raise UsageError("flops needs operations, and this run has none: trace it with graph=True")
    steps = [steps_of(call) for call in trace.calls]
    backward = _Backward(trace, steps)
    own = [_own(trace, call, steps[call.index], backward) for call in trace.calls]
    totals, inside, behind = [one.total for one in own], [one.inside for one in own], [one.behind for one in own]
    for call in reversed(trace.calls):  # children come after their parents
        if call.parent_index is not None:
            totals[call.parent_index] += totals[call.index]
            for counts in (inside, behind):
                if counts[call.index]:
                    counts[call.parent_index] = Counter(counts[call.parent_index]) + Counter(counts[call.index])
    return tuple(
        [replace(one, total=total, inside=a, behind=b) for one, total, a, b in zip(own, totals, inside, behind)]
    )


class _Backward:
    """The operations that a backward goes through, also where the forward ran without gradients.

    Those are the forwards of ``torch.autograd.Function``, in which no tensor has a gradient. One of them is known: a
    reentrant checkpoint, which computes what is in it again in the backward, with gradients. Values in
    ``_differentiable`` have a gradient in the backward, though they were noted without one.
    """

    def __init__(self, trace: TraceData, steps: Sequence[Steps | None]) -> None:
        self._reached = reached_by_backward(trace, steps)
        self._checkpointed: set[int] = set()  # calls in reentrant checkpoints
        self._differentiable = concealed_gradients(trace, steps) & (self._reached or set())
        for call in trace.calls:
            called_there = (call.source or "").replace("\\", "/").rpartition(":")[0].endswith(_CHECKPOINT)
            if not call.grad and (called_there or call.parent_index in self._checkpointed):
                self._checkpointed.add(call.index)
                for step in steps[call.index] or ():
                    operands = [trace.values[number] for number in step.operands]
                    if any(value.requires_grad or value.number in self._differentiable for value in operands):
                        self._differentiable |= step.new

    def of(self, call: Call, step: Step, flops: Flops) -> Flops | None:
        """Return the operations of a step with those of its backward; ``None`` where these are not known."""
        reaches = self._reached is None or bool(self._reached & step.new)
        if step.op.grad and not (reaches and step.operands & self._differentiable):
            return flops if reaches else Flops(flops.forward)
        if not flops.forward or self._reached is None or not reaches:
            return Flops(flops.forward)
        if not step.op.grad and call.index not in self._checkpointed:
            return None
        args = tuple([self._with_gradients(arg) for arg in step.args])
        kwargs = {name: self._with_gradients(arg) for name, arg in step.kwargs.items()}
        return _flops_of(replace(step, args=args, kwargs=kwargs))

    def _with_gradients(self, item: Item) -> Item:
        if isinstance(item, Value):
            return replace(item, requires_grad=True) if item.number in self._differentiable else item
        if isinstance(item, Group):
            return replace(item, items=tuple([self._with_gradients(inner) for inner in item.items]))
        return item


_CHECKPOINT = "torch/utils/checkpoint.py"


def _flops_of(step: Step) -> Flops | None:
    op = step.op
    return flops_of(op.op, op.target if op.kind == "call_function" else op.op, step.result, step.args, step.kwargs)


def _own(trace: TraceData, call: Call, steps: Steps | None, backward: _Backward) -> CallFlops:
    """Return the operations of a call without those of the calls in it."""
    unknown: Counter[str] = Counter()
    prefix = network_of(trace).call_id(call)
    if steps is None:
        fused = _fused(trace, call)
        if fused is None and call.error is None:
            unknown[f"{call.type}'s own operations" if call.children else call.type] += 1
        return CallFlops(call, fused or NONE, fused or NONE, unknown, unknown, unknown)
    unknown.update(_unseen(call))
    behind: Counter[str] = Counter()
    counted: list[OpFlops] = []
    total = NONE
    for step in steps:
        flops, is_forward = _flops_of(step), False
        if flops is None:
            unknown[step.op.op] += 1
        else:
            with_backward = backward.of(call, step, flops)
            is_forward = with_backward is None
            behind[step.op.op] += is_forward
            flops = Flops(flops.forward) if with_backward is None else with_backward
            total += flops
        counted.append(OpFlops(f"{prefix}/{step.op.name}", step.op.op, flops, is_forward))
    return CallFlops(call, total, total, unknown, unknown, unknown + behind, tuple(counted))


_UNSEEN = {"scripted function": "it runs a scripted function", "compiled code": "which could not be noted"}


def _unseen(call: Call) -> list[str]:
    """Return the kinds of code in a call whose operations no graph has: scripted functions, and numpy."""
    found = [kind for kind, words in _UNSEEN.items() if words in call.reason]
    names = [] if call.graph is None else [op.op for op in call.graph.ops]
    if "numpy" in names:  # a tensor that comes from outside after that was computed there
        after = [op.target for op in call.graph.ops[names.index("numpy") :]]  # type: ignore[union-attr]
        found += ["numpy"] * any(target.startswith("_tensor_constant") for target in after)
    return found


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
