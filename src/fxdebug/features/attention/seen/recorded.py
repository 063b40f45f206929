"""The attentions of a trace: their operations, and the values that these were given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fxdebug.analyses.cost.reached_by_backward import Step, steps_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.operators.attention import FUSED, MULTI_HEAD, SOFTMAX, SoftmaxFlow, bound
from fxdebug.operators.names import canonical
from fxdebug.query.network import network_of


@dataclass(frozen=True)
class RecordedAttention:
    """One attention of a trace: its call, its operation, its arguments by name, with values for tensors, its result.

    Where attention is written out, ``arguments`` has ``weights``, and ``result`` is the weighted sum.
    """

    path: str
    call: str
    op: str
    source: str | None
    arguments: dict[str, Any]
    result: Value | None
    dropped: bool = False

    @property
    def values(self) -> list[Value]:
        """Every value that its weights are computed from, and the result of a fused operation."""
        found = [value for item in self.arguments.values() for _, value in leaves(item)]
        return found if self.op == SOFTMAX or self.result is None else [*found, self.result]


def attentions_of(trace: TraceData) -> Iterator[RecordedAttention]:
    """Yield the attentions of a trace, in execution order within each call."""
    net = network_of(trace)
    for call in trace.calls:
        flow: SoftmaxFlow[Value] = SoftmaxFlow(lambda a, b: a.number == b.number, lambda value: value.shape)
        sources = () if call.body is None else call.body.sources
        for position, step in enumerate(steps_of(call) or ()):
            found = _attention(step, flow)
            if found is None:
                continue
            op, arguments, result, dropped = found
            source = sources[position] if position < len(sources) else None
            yield RecordedAttention(call.path, net.call_id(call), op, source, arguments, result, dropped)


def _attention(step: Step, flow: SoftmaxFlow[Value]) -> tuple[str, dict[str, Any], Value | None, bool] | None:
    name = canonical(step.op.op.partition(".")[0])
    results = [value for _, value in leaves(step.result)]
    result = results[0] if results else None
    if name in (FUSED, MULTI_HEAD):
        arguments = bound(name, step.args, step.kwargs)
        trains = name == FUSED or bool(arguments.get("training", True))
        return name, arguments, result, bool(arguments.get("dropout_p")) and trains
    if result is None:
        return None
    whole = [*step.args, *(item for key, item in step.kwargs.items() if key == "dim")]
    operands = [value for item in (*step.args, *step.kwargs.values()) for _, value in leaves(item)]
    product = flow.step(name, whole, operands, result)
    if product is None:
        return None
    return SOFTMAX, {"weights": product.weights}, result, product.dropped
