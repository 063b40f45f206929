"""What weights hold altogether, in whatever layout: fused here and apart there, or a norm in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fxdebug.comparison.by_value import EXACT
from fxdebug.comparison.closeness import size_of
from fxdebug.comparison.regions import Region, parts
from fxdebug.comparison.steps import Run, Step
from fxdebug.values import Stats, Value


def makers(run: Run, step: Step, partner: Callable[[Value], Value | None], other: Run) -> Iterable[Step]:
    """Who makes, on the other side, what is taken out of the product of a step with weights."""
    for part in parts(run, step) if step.weights else ():
        value = partner(part)
        maker = None if value is None else other.made.get(value.number)
        if maker is not None:
            yield maker


def folds(found: Region) -> bool:
    """Has it a norm over the batch, or scales by weights? Where only one has, the other may have it in its products."""
    return any(step.name == "batch_norm" or (step.name in ("mul", "div") and step.weights) for step in found.doing)


def hold_others(a: Iterable[Value], b: Iterable[Value]) -> bool:
    """Do two sets of weights hold other numbers? Matrices and vectors apart; a vector of zeros may be left out."""
    for matrices in (True, False):
        sides = [[v.stats for v in side if (len(v.shape) > 1) == matrices] for side in (list(a), list(b))]
        known = [[stats for stats in side if stats is not None] for side in sides]
        if matrices and sum(s.count for s in known[0]) != sum(s.count for s in known[1]):
            return False  # of different sizes: they do not stand for each other
        sums = [_sums(side) for side in known]
        size = max(sums[0][1], sums[1][1])
        if size and any(abs(x - y) > EXACT * scale for x, y, scale in zip(*sums, (math.sqrt(size), size))):
            return True
    return False


def _sums(parts: Iterable[Stats]) -> tuple[float, float]:
    """The sum of all elements, in units of the root of their number, and of their squares."""
    held = list(parts)
    count = sum(stats.count for stats in held)
    total = math.fsum(float(stats.mean.real) * stats.count for stats in held if stats.mean is not None)
    return total / math.sqrt(max(count, 1)), math.fsum(size_of(stats) ** 2 * stats.count for stats in held)


def free(value: Value, paired: Iterable[int]) -> bool:
    """Has a value no partner?"""
    return value.number not in paired
