"""Views that split, join or order dimensions another way: channels of a group side by side, or one of each in turn.

A dimension of ``8 × 4`` elements that is read as ``4 × 8`` has the same size, and so do two that are joined in the
other order: a reshape raises for neither.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.repair.candidates.variations.variation import NEEDED, Variation
from fxdebug.repair.rerun.replaced_operations import Ran

MOST_DIMS = 5  # of which two are exchanged
_VIEWS = frozenset(["view", "reshape", "flatten", "unflatten"])
_PERMUTING = frozenset(["permute", "transpose", "movedim", "moveaxis", "swapaxes", "t", "T", "mT"])


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
    for splits in (True, False):
        inside = _ends(sizes, given.shape if splits else made.shape)
        for at, end in itertools.combinations(range(len(sizes) + 1), 2):
            if end - at > 2 and 1 not in sizes[at:end] and not inside & set(range(at + 1, end)):
                yield from (_of_blocks(sizes, at, middle, end, splits) for middle in range(at + 1, end))


def moved_dimensions(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a view that joins dimensions with two of them exchanged before, and a permutation with two others so."""
    given, made = (ran.args[0] if ran.args else None), ran.result
    if not isinstance(given, Tensor) or not isinstance(made, Tensor) or given.ndim > MOST_DIMS:
        return
    joins = name in _VIEWS and made.ndim < given.ndim
    for i, j in itertools.combinations(range(given.ndim), 2):
        if 1 in (given.shape[i], given.shape[j]) or not (joins or name in _PERMUTING):
            continue
        words = f"dimensions {i} and {j} exchanged before"
        told = f"dimensions {i} and {j} stand the other way round before {{op}} than in a"
        yield Variation(told, f"{{op}} with {words}", partial(_moved, i, j, joins), of_operand=0)


def _moved(i: int, j: int, joins: bool, ran: Ran) -> Any:
    given = ran.args[0].transpose(i, j)
    return given.reshape(ran.result.shape) if joins else ran.function(given, *ran.args[1:], **ran.kwargs)


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
    because = f"{done} {one} × {other}{NEEDED}{needed}"
    return Variation(because, f"{{op}} with {needed}", change, factors=(at, one, other), splits=splits)


def _of_blocks(sizes: Sequence[int], at: int, middle: int, end: int, splits: bool) -> Variation:
    """Return a view with some neighbouring factors before some others: blocks of channels, and channels of blocks."""
    count, first, second = len(sizes), range(at, middle), range(middle, end)
    order = [*range(at), *second, *first, *range(end, count)]

    def change(ran: Ran) -> Any:
        given, made = ran.args[0], ran.result
        own = _factors(given.shape, made.shape)
        if len(own) != count or own[at:end] != list(sizes[at:end]):
            return made  # in another layer nothing is split there
        if splits:
            back = [order.index(dim) for dim in range(count)]
            return given.reshape([own[dim] for dim in order]).permute(back).reshape(made.shape)
        return given.reshape(own).permute(order).reshape(made.shape)

    texts = [" × ".join(str(sizes[dim]) for dim in (*one, *other)) for one, other in ((first, second), (second, first))]
    done = f"{math.prod(sizes[at:end])} elements are {'split into' if splits else 'joined from'} {texts[0]}"
    return Variation(f"{done}{NEEDED}{texts[1]}", f"{{op}} with {texts[1]}", change)


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
