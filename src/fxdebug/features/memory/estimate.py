"""Estimate the peak of a run with another batch size or dtype, from runs of other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxdebug.features.memory.record import Allocation, MemoryRecord

Sizes = Sequence[tuple[int, MemoryRecord]]  # batch sizes with a run of each


def estimated_peak(runs: Sizes, batch: int, scale: Mapping[str, float]) -> int:
    """Return the estimated peak in bytes for a batch size, where memory of each dtype is ``scale`` times as large.

    Each allocation is taken as linear in the batch size, on the line through the first two runs; so the peak may move
    to another moment. Where the runs made different allocations, the peak itself is taken as linear.
    """
    lines = [(size, _first_step(record)) for size, record in runs]
    (size, first), (other, second) = lines[0], lines[-1]
    slope = (batch - size) / (other - size) if other != size else 0.0
    if [_facts(one) for one in first] == [_facts(one) for one in second]:
        grown = [
            (one, max(0.0, one.bytes + slope * (two.bytes - one.bytes)) * scale.get(one.dtype, 1.0))
            for one, two in zip(first, second)
        ]
        return round(_peak(grown))
    one, two = (_peak([(each, each.bytes * scale.get(each.dtype, 1.0)) for each in made]) for made in (first, second))
    return round(max(0.0, one + slope * (two - one)))


def measured_peak(record: MemoryRecord) -> int:
    """Return the peak of the first step of a run, in bytes."""
    return round(_peak([(each, float(each.bytes)) for each in _first_step(record)]))


def _first_step(record: MemoryRecord) -> list[Allocation]:
    return [allocation for allocation in record.allocations if allocation.step == 0]


def _facts(allocation: Allocation) -> tuple[object, ...]:
    return allocation.op, allocation.name, allocation.dtype, allocation.born, allocation.freed


def _peak(sizes: Sequence[tuple[Allocation, float]]) -> float:
    """Return the most that is alive at once, of allocations with other sizes than their own."""
    changes: dict[int, float] = {}
    for allocation, size in sizes:
        changes[allocation.born] = changes.get(allocation.born, 0.0) + size
        if allocation.freed is not None:
            changes[allocation.freed] = changes.get(allocation.freed, 0.0) - size
    most = alive = 0.0
    for _, change in sorted(changes.items()):
        alive += change
        most = max(most, alive)
    return most
