"""Inputs of two runs that differ in some positions only: where, what reads them, and where results differ for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.query import network

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 3  # places along a further dimension
ASKS = frozenset("size shape dim getattr device dtype len numel".split())  # the code asks of what kind an input is


@dataclass(frozen=True)
class _Changed:
    """The dimension of an input along which two runs differ from a position on, of ``length``; ``also`` where else."""

    dim: int
    start: int
    length: int
    also: str


def told_of_positions(pairs: Pairs, one: Value, other: Value) -> str:
    """Say from which position on an input differs, what reads it, and from where on what is returned differs.

    Where that is before that position, a call sees what comes later. Nothing is said of inputs that differ everywhere,
    nor without their data.
    """
    a, b = pairs.a.trace, pairs.b.trace
    differs = _differing(a, b, one, other)
    changed = None if differs is None else _changed(differs)
    if changed is None:
        return ""
    said = f" from position {changed.start} of {changed.length} on{changed.also}"
    reading = _first_reading(b, other)
    if reading:
        said += f", first read by {reading}"
    returned = [
        (place, x.shape[changed.dim])
        for x, y in zip(a.root.outputs or (), b.root.outputs or ())
        if (place := _first_place(a, b, x, y, changed, changed.dim)) is not None
    ]
    for place, size in [found for found in returned if found[0] < found[1]][:1]:
        said += f"; what is returned differs from position {place} of {size} on"
        if size < changed.length:
            said += f" (position {place + changed.length - size}, if these are the last {size})"
        elif place < changed.start:
            said += f", before it: {_looking_ahead(pairs, changed) or 'a part of the model'} sees what comes later"
    if returned and all(place == size for place, size in returned) and len(returned) == len(b.root.outputs or ()):
        said += "; what is returned is the same"
    return said


def _differing(a: TraceData, b: TraceData, one: Value, other: Value) -> Tensor | None:
    """Return where two values of one shape differ; ``None`` without their data."""
    if one.saved is None or other.saved is None or one.shape != other.shape or one.layout != "strided":
        return None
    try:
        left, right = a.tensor(one), b.tensor(other)
        return (left != right) & ~((left != left) & (right != right))
    except Exception:  # deleted since, or of a layout that has no elements
        return None


def _changed(differs: Tensor) -> _Changed | None:
    for dim in range(1 if differs.ndim > 1 else 0, differs.ndim):
        places = _places(differs, dim)
        start, length = (places[0] if places else 0), differs.shape[dim]
        if places and start and places[-1] == length - 1:
            others = [(at, _places(differs, at)) for at in range(differs.ndim) if at != dim]
            few = [
                (at, found) for at, found in others if 2 * len(found) < differs.shape[at] and len(found) <= len(others)
            ]
            also = "".join(f", at {', '.join(map(str, found))} of dimension {at}" for at, found in few)
            return _Changed(dim, start, length, also)
    return None


def _places(differs: Tensor, dim: int) -> list[int]:
    """Return the positions along a dimension at which anything differs."""
    kept = differs.movedim(dim, 0).reshape(differs.shape[dim], -1).any(1)
    return [int(at) for at in kept.nonzero().flatten().tolist()]


def _first_place(a: TraceData, b: TraceData, one: Value, other: Value, changed: _Changed, dim: int) -> int | None:
    """Return the first position at which two results differ, their size where they do not; ``None`` if none has any."""
    if len(one.shape) <= dim or not 1 < one.shape[dim] <= changed.length:
        return None
    differs = _differing(a, b, one, other)
    if differs is None:
        return None
    places = _places(differs, dim)
    return places[0] if places else one.shape[dim]


def _first_reading(trace: TraceData, value: Value) -> str:
    """Return the first operation that reads an input, with its line: not one that asks for its size."""
    net = network.network_of(trace)
    reading = sorted(
        (net.nodes[edge.target] for edges in net.out_of.values() for edge in edges if _reads(edge.value, value)),
        key=lambda node: node.position,
    )
    for node in reading:
        if node.kind in ("call_function", "call_method") and node.op not in ASKS:
            where = f" in {node.path}" if node.path else ""
            return f"{node.op}{where}" + (f" ({Path(node.source).name})" if node.source else "")
    return ""


def _reads(one: Value | None, value: Value) -> bool:
    return one is not None and one.number == value.number


def _looking_ahead(pairs: Pairs, changed: _Changed) -> str:
    """Return the first call in the model that returns something else before the position, though given the same there.

    It is told with its class; nothing is returned where the values of no call have so many positions.
    """
    a, b = pairs.a.trace, pairs.b.trace
    inner = [call for call in b.calls if call.parent is not None and call.outputs is not None]
    for call in sorted(inner, key=lambda each: each.index if each.finished is None else each.finished):
        partner = pairs.call_in_a(call)
        if partner is None or partner.outputs is None or call.outputs is None:
            continue
        given = [_first_place(a, b, *pair) for pair in _whole(partner.inputs, call.inputs, changed)]
        made = [_first_place(a, b, *pair) for pair in _whole(partner.outputs, call.outputs, changed)]
        is_same = bool(given) and all(place is not None and place >= changed.start for place in given)
        if is_same and any(place is not None and place < changed.start for place in made):
            return f"{call.path} ({call.type})"
    return ""


def _whole(
    one: Inputs | Outputs, other: Inputs | Outputs, changed: _Changed
) -> Iterator[tuple[Value, Value, _Changed, int]]:
    """Yield the pairs of values that have as many positions as the input, with the dimension where it is the only one.

    Of two such dimensions it is that of the input.
    """
    for x, y in zip(one, other):
        dims = [dim for dim, size in enumerate(x.shape) if size == changed.length]
        if x.shape == y.shape and (len(dims) == 1 or changed.dim in dims):
            yield x, y, changed, dims[0] if len(dims) == 1 else changed.dim
