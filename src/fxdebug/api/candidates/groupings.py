"""Views that split or join dimensions another way: channels of a group side by side, or one in each group in turn.

A dimension of ``8 × 4`` elements that is read as ``4 × 8`` has the same size, and so do two that are joined in the
other order: a reshape raises for neither.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from fxdebug.api.candidates.variation import Variation
from fxdebug.capture.pausing.replaced_operations import Ran

_VIEWS = frozenset(["view", "reshape", "flatten", "unflatten"])


def groupings(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a view with two neighbouring factors of a dimension that it splits or joins in the other order."""
    given, made = (ran.args[0] if ran.args else None), ran.result
    if name not in _VIEWS or not isinstance(given, Tensor) or not isinstance(made, Tensor):
        return
    sizes = _factors(given.shape, made.shape)
    for at in range(len(sizes) - 1):
        one, other = sizes[at : at + 2]
        for splits in (True, False):
            parts = given.shape if splits else made.shape  # of which both factors are one dimension
            if 1 not in (one, other) and at + 1 not in _ends(sizes, parts):
                yield _grouping(at - len(sizes), splits, one, other)


def is_undone_by(first: Ran, second: Ran) -> bool:
    """Does a view bring back the shape that another one had changed?"""
    tensors = [tensor for each in (first, second) for tensor in (*each.args[:1], each.result)]
    shapes = [tensor.shape for tensor in tensors if isinstance(tensor, Tensor)]
    return len(shapes) == 4 and shapes[1] == shapes[2] and shapes[0] == shapes[3]


def _grouping(at: int, splits: bool, one: int, other: int) -> Variation:
    """Return a view with the factors ``at`` and behind it, counted from the end, in the other order."""

    def change(ran: Ran) -> Any:
        given, made = ran.args[0], ran.result
        sizes = _factors(given.shape, made.shape)
        if len(sizes) < -at:
            return made  # in another layer nothing is split there
        first = at + len(sizes)
        swapped = [*sizes[:first], sizes[first + 1], sizes[first], *sizes[first + 2 :]]
        return given.reshape(swapped if splits else sizes).transpose(first, first + 1).reshape(made.shape)

    done = f"{one * other} elements are split into" if splits else "elements are joined from"
    needed = f"{other} × {one}" if one != other else "the two the other way round"
    because = f"{done} {one} × {other} in b, where a's values need {needed}"
    return Variation(because, f"{{op}} with {needed}", change, (at, splits))


def _factors(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the sizes of the dimensions of both shapes' common parts: those of 6 × 4 and 2 × 12 are 2, 3 and 4."""
    ends = sorted({*_sizes_behind(one), *_sizes_behind(other)}, reverse=True)
    return [end // behind for end, behind in itertools.pairwise(ends)] if ends[-1] == 1 and _divide(ends) else []


def _sizes_behind(shape: Sequence[int]) -> list[int]:
    """Return how many elements lie in and behind each dimension, and 1 at the end."""
    return [math.prod(shape[at:]) for at in range(len(shape))] + [1]


def _divide(ends: Sequence[int]) -> bool:
    return all(behind and end % behind == 0 for end, behind in itertools.pairwise(ends))


def _ends(sizes: Sequence[int], shape: Sequence[int]) -> set[int]:
    """Return before which of the common parts a dimension of a shape begins."""
    behind = {*_sizes_behind(shape)}
    return {at for at in range(len(sizes)) if math.prod(sizes[at:]) in behind}
