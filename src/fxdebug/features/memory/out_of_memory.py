"""The finding about a run that ran out of memory: what was asked for and where, what was alive, what would fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fxdebug.data.findings import ERROR, Finding
from fxdebug.data.measures import quantity
from fxdebug.features.memory.record import Allocation, Fit, MemoryRecord, Refused, alive_at, by_category


def out_of_memory(record: MemoryRecord, model: str, fits: Sequence[Fit]) -> Iterator[Finding]:
    """Yield the finding about the operation that got no memory, if there is one."""
    refused = record.refused
    if refused is None:
        return
    alive = list(alive_at(record.allocations, record.events - 1))
    if refused.limit is not None and alive:  # what passed the limit was made, to see that it did
        alive.pop()
    yield Finding(
        rule="out of memory",
        severity=ERROR,
        path=refused.path,
        call="" if refused.call is None else f"{refused.path or model}#{record.calls[refused.call].number}",
        op=refused.op,
        what=f"{_asked(refused)}; {_alive(alive, refused.alive)}",
        source=refused.source,
        measured=None if refused.bytes is None else refused.alive + refused.bytes,
        threshold=refused.limit,
        unit="B",
        advice=_advice(fits),
    )


def _asked(refused: Refused) -> str:
    asked = "memory" if refused.bytes is None else quantity(refused.bytes, "B")
    where = " in the backward" if refused.phase == "backward" else ""
    room = "the device has no more" if refused.limit is None else f"the limit is {quantity(refused.limit, 'B')}"
    return f"{refused.op} asks{where} for {asked} beside {quantity(refused.alive, 'B')} in use: {room}"


def _alive(alive: Sequence[Allocation], in_use: int) -> str:
    sizes = sorted(by_category(iter(alive)).items(), key=lambda pair: -pair[1])
    shares = [f"{quantity(size, 'B')} {category}" for category, size in sizes[:3]]
    made: defaultdict[tuple[str, str], int] = defaultdict(int)
    for allocation in alive:
        if allocation.op:
            made[allocation.op, (allocation.source or allocation.path).rpartition("/")[2]] += allocation.bytes
    text = f"in use are {', '.join(shares)}"
    if made:
        (op, place), size = max(made.items(), key=lambda pair: pair[1])
        text += f"; most of what was computed is that of {op}" + (f" ({place})" if place else "")
        text += f": {quantity(size, 'B')}"
    return text


def _advice(fits: Sequence[Fit]) -> str:
    """Say which settings would fit, those that were tried first."""
    fitting = [
        f"{fit.setting} {'fits' if fit.how == 'tried' else 'would fit'} ({quantity(fit.peak, 'B')}, {fit.how})"
        for fit in sorted(fits, key=lambda fit: fit.how != "tried")
        if fit.fits
    ]
    return "; ".join(fitting) if fitting else "no smaller batch was found that fits: see what is alive at the peak"
