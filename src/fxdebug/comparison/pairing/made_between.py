"""Name the operation and the numbers of a finding where only rows and positions were compared, call by call."""

from __future__ import annotations

from dataclasses import replace

from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.result import Row, Side
from fxdebug.data.trace import TraceData
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import REORDERING_VIEWS, SLICES, TRANSPARENT, canonical
from fxdebug.query.network import Network, Node, network_of

_VIEWS = TRANSPARENT | REORDERING_VIEWS
SHOWN = 6  # numbers of either side


def at_operation(row: Row, meter: Meter) -> Row:
    """Return a finding about a value with the operation that made it, if that was no call; else with what differs."""
    if (
        meter.facing is None
        or meter.facing.by == "cache"
        or row.kind != "values"
        or row.op is not None
        or row.a is None
        or row.b is None
    ):
        return row
    made_a, made_b = _maker(row.a, meter.a), _maker(row.b, meter.b)
    if made_b is not None and made_b.kind == "placeholder":
        return row
    long = meter.facing.larger
    elsewhere = "returns other values: what stands elsewhere in b, or a mask, has an effect here"
    if meter.facing.by == "start":
        elsewhere = f"returns other values: what stands behind them in {long} has an effect here"
    elif meter.facing.by == "list":
        elsewhere = f"returns other values: the other inputs of {long} have an effect here"
    if made_b is None or made_b.kind == "call_module":
        return replace(row, because=f"given the same at these positions, it {elsewhere}")
    before = _before(made_a, made_b, meter)
    if before is not None and before[0] != before[1]:
        because = (
            f"{made_b.op} is given {before[0]} positions before those of the input in a, {before[1]} in b: its results "
            "are those of other places"
        )
        return replace(row, op=made_b.op, source=made_b.source or row.source, because=because)
    numbers = _numbers(row, meter)
    because = f"given the same at these positions, the code up to {made_b.op} {elsewhere}"
    if numbers is not None:
        because = f"{made_b.op} returns {numbers[0]} in a, {numbers[1]} in b, for the same {meter.facing.by}"
    a = row.a if made_a is None else replace(row.a, op=made_a.op, source=made_a.source, node=made_a.id)
    b = replace(row.b, op=made_b.op, source=made_b.source, node=made_b.id)
    return replace(row, op=made_b.op, source=made_b.source or row.source, a=a, b=b, because=because)


def _before(made_a: Node | None, made_b: Node, meter: Meter) -> tuple[int, int] | None:
    """Return how many positions more than the input an operation is given, in a and in b, where blocks are compared."""
    if made_a is None or meter.facing is None or meter.facing.by != "values" or made_a.op != made_b.op:
        return None
    sides = [network_of(trace).into.get(made.id, ()) for made, trace in ((made_a, meter.a), (made_b, meter.b))]
    for one, other in zip(*sides):
        if one.value is None or other.value is None or len(one.value.shape) != len(other.value.shape):
            continue
        sizes = [(x, y) for x, y in zip(one.value.shape, other.value.shape) if x != y]
        if len(sizes) == 1:
            more = [size - length for size, length in zip(sizes[0], meter.facing.length)]
            return (more[0], more[1]) if min(more) >= 0 else None
    return None


def _maker(side: Side, trace: TraceData) -> Node | None:
    """Return the operation that computed the value of a side: views and copies of its result are passed over."""
    network = network_of(trace)
    id = None if side.value is None else network.producer_of.get(side.value.number)
    while id is not None:
        node = network.nodes[id]
        before = [edge.source for edge in network.into.get(id, ()) if network.nodes[edge.source].values]
        if not _is_view(node, network) or len(before) != 1 or network.nodes[before[0]].kind == "placeholder":
            return node
        id = before[0]
    return None


def _is_view(node: Node, network: Network) -> bool:
    """Does an operation put all that it is given elsewhere, or pick the whole: the only row of a batch?"""
    if canonical(node.op) in SLICES:
        given = [edge.value for edge in network.into.get(node.id, ()) if edge.value is not None]
        return [value.numel for value in given] == [value.numel for value in node.values[:1]]
    return canonical(node.op) in _VIEWS


def _numbers(row: Row, meter: Meter) -> tuple[str, str] | None:
    """Return the first numbers of both sides where they are integers, from the first that differs on."""
    one = None if row.a is None else row.a.value
    other = None if row.b is None else row.b.value
    if one is None or other is None or one.dtype in EPS:
        return None
    parts = meter.parts(one, other)
    if parts is None:
        return None
    differing = (parts[0] != parts[1]).nonzero().flatten()
    start = int(differing[0]) if differing.numel() else 0
    shown = [part[start : start + SHOWN].tolist() for part in parts]
    more = ", …" if parts[0].numel() > start + SHOWN else ""
    return (f"{_text(shown[0])}{more}", f"{_text(shown[1])}{more}")


def _text(numbers: list[object]) -> str:
    return ", ".join(map(str, numbers))
