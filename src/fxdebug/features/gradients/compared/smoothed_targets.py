"""Two losses whose targets differ: label smoothing, told by the gradient of the last bias.

The gradient of the bias of a classifier is, for each class, S times its mean probability less its mean target, where S
is what the targets of a sample sum to. Another smoothing changes the target of a label by one number and those of all
other classes by another one: beyond a factor, gradients then differ by a constant, and by one step for each sample of
the class.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fxdebug.features.gradients.compared.facing import Facing, elements_of
from fxdebug.operators.dtypes import EPS

if TYPE_CHECKING:
    from torch import Tensor

FEWEST: Final = 5  # classes, of which two numbers are free
FEWEST_BY_FACTOR: Final = 6  # classes where the sum of the targets is free as well
MOST: Final = 48  # classes that are looked at
LOOKED_AT: Final = 4  # vectors from the end of the model
OFF: Final = 0.05  # of a step, that a class may be off before the factor is fitted
ROUNDINGS: Final = 4  # of the largest gradient: what a mean over samples is off by
CLEARLY: Final = 1e3  # roundings that two classes are apart that tell a factor
LARGEST: Final = 20.0
LONGEST: Final = 4096  # steps between two classes


def smoothing_told(pairs: Sequence[Facing]) -> str:
    """Return how the targets of two losses differ, by the gradients of a bias; empty where they show nothing of it."""
    vectors = [pair for pair in pairs if len(pair.a.shape) == 1 and pair.a.shape[0] >= FEWEST]
    for pair in vectors[:LOOKED_AT]:
        if pair.a.tensor is None or pair.b.tensor is None:
            continue
        a, b = elements_of(pair.a.tensor)[:MOST], elements_of(pair.b.tensor)[:MOST]
        noise = ROUNDINGS * max(EPS.get(side.dtype, 0.0) for side in (pair.a, pair.b)) * float(b.abs().max())
        gap = b - a
        if float(gap.abs().max()) <= noise or float((b - pair.factor * a).abs().max()) <= noise:
            continue
        if _steps(a, noise) is not None:  # of a head that is zero: any loss has even steps
            continue
        if float(gap.max() - gap.min()) <= noise:
            return (
                f"the gradients of {pair.name} differ by one number for all classes: the targets of the loss of b are "
                f"{'smaller' if float(gap.mean()) > 0 else 'larger'} for every class, the label as the others, so that "
                "they do not sum to what those of a do (label smoothing)"
            )
        steps = _steps(gap, noise)
        if steps is not None and _fitted(a, b, steps, noise) is not None:
            return (
                f"the targets of the loss of b are smoothed otherwise (label smoothing): the gradients of {pair.name} "
                "differ by one step for each sample of a class"
            )
        factor = _sum_of_targets(a, b, noise)
        if factor is not None:
            return (
                f"the targets of the loss of b sum to {factor:.4g} times what those of a do, and are smoothed "
                f"otherwise (label smoothing): so differ the gradients of {pair.name}, class by class"
            )
    return ""


def _sum_of_targets(a: Tensor, b: Tensor, noise: float) -> float | None:
    """Return the factor of a beyond which the classes differ by even steps: that of classes with as many samples."""
    if len(a) < FEWEST_BY_FACTOR:
        return None
    for one, other in itertools.combinations(range(len(a)), 2):
        apart = float(a[one] - a[other])
        factor = float(b[one] - b[other]) / apart if abs(apart) > CLEARLY * noise else 0.0
        if not 1 / LARGEST < factor < LARGEST:
            continue
        steps = _steps(b - factor * a, 4 * noise)
        fitted = None if steps is None else _fitted(a, b, steps, noise)
        if fitted is not None:
            return fitted
    return None


def _fitted(a: Tensor, b: Tensor, steps: Tensor, noise: float) -> float | None:
    """Return the factor of a that gives b with so many steps for each class and a constant, if rounding is the rest."""
    import torch

    known = torch.stack((a, steps, torch.ones_like(a)), 1)
    factors = torch.linalg.lstsq(known, b[:, None]).solution
    return float(factors[0]) if float((known @ factors - b[:, None]).abs().max()) <= noise else None


def _steps(numbers: Tensor, noise: float) -> Tensor | None:
    """Return how many steps each number is above the least, where all are a whole number of them apart."""
    ordered = numbers.sort().values
    gaps = ordered.diff()
    gaps = gaps[gaps > noise]
    for parts in (1, 2, 3) if len(gaps) else ():
        step = float(gaps.min()) / parts
        steps = (numbers - ordered[0]) / step
        if noise > OFF * step or float(steps.max()) > LONGEST:
            return None
        if float((steps - steps.round()).abs().max()) <= OFF:
            return steps.round()
    return None
