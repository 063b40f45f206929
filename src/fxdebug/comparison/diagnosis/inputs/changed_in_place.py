"""Inputs that one of two runs wrote into, so that the other was given what it left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.query import network


def changed_in_place(a: TraceData, b: TraceData, one: Value, other: Value) -> str:
    """Say which operation of a run writes into an input, where the other run may have been given what it left."""
    sides = (("a", a, b, one, other), ("b", b, a, other, one))
    for side, run, second, value, left in sides if one.shape == other.shape else ():
        writes = network.network_of(run).writes_to_input(value)
        is_left = _is_left(run, second, value, left, [written for _, written in writes]) if writes else False
        if is_left is not False:
            node = writes[0][0]
            line = f", {Path(node.source).name}" if node.source else ""
            so = ": the other was given what it left" if is_left else ""
            return f", into which the run of {side} writes in place ({node.op}{line}){so}"
    return ""


def _is_left(run: TraceData, second: TraceData, value: Value, left: Value, written: Sequence[Value]) -> bool | None:
    """Was the second run given what the first left in its input by its writes? ``None`` where it cannot be told."""
    last = written[-1]
    if last.stats is not None and left.stats is not None and last.numel == value.numel:
        return last.stats == left.stats
    if None in (value.saved, left.saved, value.stride):
        return None
    try:
        before, after = run.tensor(value), second.tensor(left)
        known = before.new_ones(before.shape, dtype=bool)
        expected = before.clone()
        for one in written:
            place = one.shape, one.stride or (), one.offset - value.offset
            known.as_strided(*place).fill_(one.saved is not None)
            if one.saved is not None:
                expected.as_strided(*place).copy_(run.tensor(one))
        alike = (expected == after) | ((expected != expected) & (after != after))
        return bool(alike[known].all()) and (bool(known.any()) or None)
    except Exception:  # of another layout, or deleted since
        return None
