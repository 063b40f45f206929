"""The course of a loss over a whole training, against the loss of a constant answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal, TypeAlias

from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.verdict.limits import Limits

SURE = 3.09  # deviations: by chance, one in a thousand
MOST = 200  # numbers of each end that are compared
LEAST_END = 5
FLAT = 1.1  # times the constant answer, above which a loss that rises is no longer at it
OUTSIDE = 1.0  # times the median
CHANCE = 2.0  # standard errors
NEARLY_ALL = 0.95
SMALL_FALL = 0.01
SMALL_RISE = 0.1
NEARLY_DONE = 0.05  # of what it began with

State: TypeAlias = Literal["none", "early", "falling", "slow", "flat", "above", "rising", "not finite"]


@dataclass(frozen=True)
class Progress:
    """The course of a loss: ``first`` and ``last`` of it (the mean of its last quarter), ``constant`` where known.

    ``falling``: it learns. ``slow``: it lies below the constant answer and hardly falls. ``above``: it falls, and a
    constant answer is still as good. ``early``: too few steps.
    """

    state: State
    steps: int
    first: float = math.nan
    last: float = math.nan
    constant: float | None = None
    highest: float = math.nan

    @property
    def is_bad(self) -> bool:
        """Is it sure that nothing, or hardly anything, is learned?"""
        return self.state in ("slow", "flat", "above", "rising", "not finite")


def progress_of(record: TrainingRecord, limits: Limits) -> Progress:
    """Return the course of a training's loss."""
    losses = losses_of(record)
    known = [loss for loss in losses if math.isfinite(loss)]
    constant = constant_of(record)
    if not losses or is_game(record):
        return Progress("none", len(record.steps), constant=constant)
    if len(known) < len(losses):
        last = known[-1] if known else math.nan
        return Progress(
            "not finite", len(losses), known[0] if known else math.nan, last, constant, max(known, default=0.0)
        )
    first, highest = losses[0], max(losses)
    if len(losses) < limits.steps:
        return Progress("early", len(losses), first, losses[-1], constant, highest)
    size = max(LEAST_END, min(MOST, len(losses) // 4))
    begin, end = losses[:size], losses[-size:]
    last, z = _level(end), lower(end, begin)
    state = _state(first, _level(begin), last, z, constant, limits)
    if state == "falling" and constant is not None and last + CHANCE * _error(end) > constant > 0:
        state = "flat"  # below it by no more than the batches differ: of rare classes there are few in each
    if state == "above" and constant is not None and sum(loss < constant for loss in end) >= NEARLY_ALL * len(end):
        state = "falling"  # a loss that cannot come near 0: of targets that are distributions, of noise
    return Progress(state, len(losses), first, last, constant, highest)


def _state(first: float, begin: float, last: float, z: float, constant: float | None, limits: Limits) -> State:
    if last > limits.rises * abs(first) and last > first and z < -2:
        return "rising"
    if constant is not None and constant > 0:
        if last < limits.learned * constant and (z > SURE or last < limits.halved * constant):
            return "falling"
        if last > FLAT * constant and z < -SURE:
            return "rising"
        if last < limits.learned * constant and z > -2:
            return "slow"
        return "above" if z > SURE else "flat"
    if 0 <= last < NEARLY_DONE * first and last < begin:
        return "falling"  # it is done before the first quarter is over
    if z > SURE and begin - last > SMALL_FALL * abs(begin) and last < first:
        return "falling"
    if z < -SURE and last - begin > SMALL_RISE * abs(begin) and last > first:
        return "rising"
    return "flat"


def _level(losses: Sequence[float]) -> float:
    """Return the mean of losses, as a constant answer has one; the median where some lie far outside."""
    middle, mean = median(losses), fmean(losses)
    return mean if abs(mean - middle) < OUTSIDE * abs(middle) else middle


def _error(losses: Sequence[float]) -> float:
    """Return the standard error of the mean of losses."""
    return stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0


def lower(end: Sequence[float], begin: Sequence[float]) -> float:
    """Return by how many deviations the end lies below the beginning, by ranks (Mann and Whitney 1947).

    >>> round(lower([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), 2)
    1.96
    """
    n, m = len(end), len(begin)
    u = sum((b < a) + 0.5 * (b == a) for a in begin for b in end)
    return (u - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def is_game(record: TrainingRecord) -> bool:
    """Do optimizers take turns with losses of their own, on parts of a container that is never called itself?"""
    facts = record.learning
    return facts is not None and not facts.called and not facts.alone


def losses_of(record: TrainingRecord) -> list[float]:
    """Return the loss of each step in the unit of the constant answer: that of one target, where the loss is known."""
    unit = unit_of(record)
    return [step.loss / unit for step in record.steps if step.loss is not None]


def unit_of(record: TrainingRecord) -> float:
    """Return by what a loss is divided to be that of one target."""
    loss = None if record.learning is None else record.learning.loss
    if loss is None or not (loss.known or loss.constant is not None) or not loss.factor:
        return 1.0
    batch = record.signs[0].batch if record.signs and record.signs[0].batch else 1
    terms = {"sum": loss.elements, "batch mean": loss.elements / batch}.get(loss.reduction, 1)
    return loss.factor * max(terms, 1)


def constant_of(record: TrainingRecord) -> float | None:
    """Return the loss of the best answer that is always the same, where the loss is known and is one of a kind."""
    facts = record.learning
    return facts.loss.constant if facts is not None and facts.alone else None
