"""The two results at which a finding shows, and the tensors of their runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fxdebug.api.finding_row import FindingRow
from fxdebug.comparison.result import Row, Side
from fxdebug.data.trace import TraceData, trace_of
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.query.network import network_of
from fxdebug.repair.rerun.tensors_at_hand import TensorsAtHand


@dataclass(frozen=True)
class Target:
    """A result of one side: the run, the value, and the operation that returned it, where it is that of the finding."""

    trace: TraceData
    hand: TensorsAtHand
    value: Value
    node: str | None
    source: str | None


def pairs_of(finding: FindingRow) -> Iterator[tuple[Target, Target]]:
    """Yield the pairs of results at which a finding shows: its own, then the next that differ.

    Raises ``UsageError`` where a run kept no tensors, or its operations are not known.
    """
    hands: dict[int, tuple[TraceData, TensorsAtHand]] = {}
    for row in (finding, *finding.later):
        if row.a is None or row.b is None:
            continue
        a, b = _target(row, row.a, "a", hands), _target(row, row.b, "b", hands)
        if a is None or b is None:
            continue
        if squeezed(a.value) != squeezed(b.value) and row.kind != "shape" and row.a.op == row.b.op is not None:
            own = _own_result(a, row.a), _own_result(b, row.b)  # one side is told by a view of it
            if own[0] is not None and own[1] is not None:
                yield own[0], own[1]
        yield a, b


def squeezed(value: Value) -> tuple[int, ...]:
    """Return the sizes of a value that are not 1."""
    return tuple([size for size in value.shape if size != 1])


def _own_result(target: Target, side: Side) -> Target | None:
    """Return the result of the operation of a side itself."""
    node = network_of(target.trace).nodes.get(side.node or "")
    return None if node is None or node.value is None else replace(target, value=node.value, node=node.id)


def _target(row: Row, side: Side, name: str, hands: dict[int, tuple[TraceData, TensorsAtHand]]) -> Target | None:
    key = id(side.call._tree)
    if key not in hands:
        trace = trace_of(side.call)
        _require_data(trace, name)
        hands[key] = trace, TensorsAtHand(trace, name)
    trace, hand = hands[key]
    node = network_of(trace).nodes.get(side.node or "")
    value = side.value
    if row.kind == "wiring" and node is not None:  # of what is given another value, the result
        value = node.value or value
    if node is None or node.kind not in ("call_function", "call_method"):
        return None if value is None else Target(trace, hand, value, None, side.source)
    is_own = value is not None and value in node.values
    return None if value is None else Target(trace, hand, value, node.id if is_own else None, side.source)


def _require_data(trace: TraceData, name: str) -> None:
    if trace.settings.get("values") != "tensors" or trace.data is None:
        raise UsageError(
            f"no script can be written: run {name} ({trace.model}) kept no tensors: run both with "
            "fx_debug(…, values='tensors')"
        )
    if trace.call_graphs is None:
        raise UsageError(
            f"no script can be written: run {name} ({trace.model}) has no graphs, so its operations are not known: "
            "run both without graph=False"
        )
