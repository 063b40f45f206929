"""Find settings with which a run would fit into memory: estimated from small runs, and tried."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from fxdebug.errors import UsageError
from fxdebug.features.memory.estimate import estimated_peak, measured_peak
from fxdebug.features.memory.other_sizes import OtherSizes
from fxdebug.features.memory.record import Fit, MemoryRecord
from fxdebug.features.shared.tried_settings.trial import as_before, first_step, tries_of
from fxdebug.operators.dtypes import bytes_of

KNOBS = ("checkpointing", "autocast", "attention", "sparse gradients", "hooks")
OF_INPUTS = ("padding",)  # what the longest row of the whole batch tells, and no run
MOST_TRIES = 8  # of a batch


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
        for fit in _smaller_batch(others, known, batch, room):
            yield fit
            most = fit.batch if fit.fits else batch // 2  # a few items take no more than their gradients
            with contextlib.suppress(UsageError):  # there is no room for it
                yield from _with_knobs(others, (max(1, most // 2), max(2, most)), batch, room)
        wide = {name: size for name in others.dtypes() if (size := bytes_of(name, ())) and size > 2}
        if wide:
            peak = estimated_peak(known, batch, {name: 2 / size for name, size in wide.items()})
            yield Fit(f"batch {batch} in bfloat16", peak, peak <= room, "estimated")
    if gradients:
        with contextlib.suppress(UsageError), torch.no_grad():
            peak = estimated_peak([(size, others.run(size)) for size in small], batch, {})
            yield Fit(f"batch {batch} under torch.no_grad()", peak, peak <= room, "estimated")


def _with_knobs(others: OtherSizes, small: tuple[int, int], batch: int, room: int) -> list[Fit]:
    """Return what settings would do to the whole batch, from steps with each of them on two smaller ones."""
    whole = estimated_peak([(size, others.run(size)) for size in small], batch, {})
    subjects = [others.subject(size) for size in small]
    fits = []
    with as_before(subjects[0]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = _at(batch, small, [first_step(subject).peak for subject in subjects])
        for one in (*tries_of(subjects[0], KNOBS), *tries_of(others.subject(batch), OF_INPUTS)):
            with contextlib.suppress(Exception):  # it is not possible here
                peak = _at(batch, small, [first_step(one.prepare(subject)).peak for subject in subjects])
                if peak is not None and usual is not None and peak < usual:
                    needed = whole - usual + peak
                    fits.append(Fit(f"batch {batch} with {one.name}", needed, needed <= room, "estimated"))
    return fits


def _at(batch: int, small: Sequence[int], peaks: Sequence[int | None]) -> int | None:
    """Return the peak at a batch, on the line through those at two small ones.

    >>> _at(10, [2, 3], [100, 140])
    420
    """
    (first, second), (low, high) = small, peaks
    if low is None or high is None:
        return None
    return low + (high - low) * (batch - first) // (second - first)


def _smaller_batch(
    others: OtherSizes, known: Sequence[tuple[int, MemoryRecord]], batch: int, room: int
) -> Iterator[Fit]:
    """Yield the largest batch that is found to fit: estimated, tried, and doubled while it fits."""
    size = _largest(lambda items: estimated_peak(known, items, {}) <= room, batch)
    if not size:
        yield Fit("batch 1", estimated_peak(known, 1, {}), False, "estimated", 1)
        return
    best: Fit | None = None
    for _ in range(MOST_TRIES):
        try:
            record = others.run(size, limit=room)
        except UsageError:  # there is no room for it
            if best is not None:
                break
            size = size * 9 // 10
        else:
            best = Fit(f"batch {size}", measured_peak(record), True, "tried", size)
            size = min(2 * size, batch - 1) if 2 * best.peak <= room else batch
        if not 0 < size < batch or (best is not None and best.setting == f"batch {size}"):
            break
    if best is not None:
        yield best


def _largest(fits: Callable[[int], bool], batch: int) -> int:
    """Return the largest number of items below ``batch`` that fits; 0 where none does.

    >>> _largest(lambda items: items * items <= 50, 100)
    7
    """
    low, high = 0, batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
