"""Find settings with which a run would fit into memory: estimated from small runs, and tried."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from fxdebug.errors import UsageError
from fxdebug.features.memory.estimate import estimated_peak, measured_peak
from fxdebug.features.memory.other_sizes import OtherSizes
from fxdebug.features.memory.record import MemoryRecord
from fxdebug.operators.dtypes import bytes_of

MOST_TRIES = 4  # of a batch that was estimated to fit


@dataclass(frozen=True, slots=True)
class Fit:
    """A setting and the peak of a run with it, in bytes: was it measured in such a run, or estimated from small ones?

    ``fits`` compares the peak with the memory that there was.
    """

    setting: str
    peak: int
    fits: bool
    how: str


def what_fits(others: OtherSizes, room: int, gradients: bool) -> Iterator[Fit]:
    """Yield settings and whether a run with each fits into ``room`` bytes, from runs with a batch of a few items.

    ``gradients``: did the run keep what a backward needs although none was asked for? A setting that cannot be tried
    is left out.
    """
    batch = others.batch
    if batch is None or batch < 2:
        return
    small = [2, 3] if batch > 3 else [1, 2]
    with contextlib.suppress(UsageError):
        known = [(size, others.run(size)) for size in small]
        yield from _smaller_batch(others, known, batch, room)
        wide = {name: size for name in others.dtypes() if (size := bytes_of(name, ())) and size > 2}
        if wide:
            peak = estimated_peak(known, batch, {name: 2 / size for name, size in wide.items()})
            yield Fit(f"batch {batch} in bfloat16", peak, peak <= room, "estimated")
    if gradients:
        with contextlib.suppress(UsageError), torch.no_grad():
            peak = estimated_peak([(size, others.run(size)) for size in small], batch, {})
            yield Fit(f"batch {batch} under torch.no_grad()", peak, peak <= room, "estimated")


def _smaller_batch(
    others: OtherSizes, known: Sequence[tuple[int, MemoryRecord]], batch: int, room: int
) -> Iterator[Fit]:
    """Yield the largest batch that fits: estimated, then tried."""
    fitting = [size for size in range(1, batch) if estimated_peak(known, size, {}) <= room]
    if not fitting:
        peak = estimated_peak(known, 1, {})
        yield Fit("batch 1", peak, False, "estimated")
        return
    size = fitting[-1]
    for _ in range(MOST_TRIES):
        try:
            record = others.run(size, limit=room)
        except UsageError:  # there is no room for it either
            size = size * 9 // 10
            if not size:
                return
            continue
        yield Fit(f"batch {size}", measured_peak(record), True, "tried")
        return
