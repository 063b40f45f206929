"""Another way to compute an operation, and whether it changes what the operation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.torch_state import internals
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import computed_with, tensors_of

NEEDED = " in b, where a's values need "  # between what an operation has and what it should have

Change: TypeAlias = Callable[[Ran], Any]
"""Computes another result from what an operation was given."""


@dataclass(frozen=True)
class Variation:
    """Another way to compute an operation.

    ``because`` says what differs, with the operation in the place of ``{op}``; ``edit`` is the change in words.
    ``factors`` of a view are those that it takes in the other order: which, counted from the end, and their sizes;
    ``splits``: it splits a dimension into them, rather than to join them to one. ``beside`` are changes that must not
    do the same: those to numbers near by, of a change to a number. ``resizes``: the result may have more elements or
    fewer, of which what follows makes as many again. ``of_number``: it changes a number that code computes with.
    ``contracted`` are the rows of a weight that it exchanges, where a product sums over them: the tensor's number, the
    first row, that behind the last, and how many a block has. Its other operand may as well have them exchanged.
    ``of_operand``: it changes what this operand is before the operation, which may be a weight.
    """

    because: str
    edit: str
    change: Change
    kind: Literal["constant", "wiring", "weights", "values", "missing", "extra"] = "wiring"  # of the finding
    factors: tuple[int, int, int] | None = None
    splits: bool = False
    beside: tuple[Change, ...] = ()
    resizes: bool = False
    of_number: bool = False
    contracted: tuple[int, int, int, int] | None = None
    of_operand: int | None = None


def with_operand(at: int, make: Callable[[Tensor], Tensor], ran: Ran) -> Any:
    """Compute an operation with one of its tensors, counted from 0, replaced by what is made of it."""
    return computed_with(ran, {at: make(tensors_of(ran)[at])})


def changes_something(variation: Variation, ran: Ran) -> bool:
    """Does a variation return anything else than the operation did, of the same dtypes and as many elements?

    What follows a view may take another shape; as many where it is not one that resizes.
    """
    try:
        both = [internals.tree_leaves(each) for each in (ran.result, variation.change(ran))]
        own, new = ([each for each in side if each is not None] for side in both)
        if len(own) != len(new) or not all(isinstance(each, Tensor) for each in (*own, *new)):
            return False
        sides = list(zip(own, new))
        alike = all((x.numel() == y.numel() or variation.resizes) and x.dtype == y.dtype for x, y in sides)
        return alike and not all(x.shape == y.shape and torch.equal(x, y) for x, y in sides)
    except Exception:  # of torch: it does not fit, or such tensors cannot be compared
        return False


def leaves_out(variation: Variation, ran: Ran) -> bool:
    """Does a variation return one of the tensors that the operation is given, as it is?"""
    try:
        new = variation.change(ran)
        given = [x for x in tensors_of(ran) if isinstance(new, Tensor) and (x.shape, x.dtype) == (new.shape, new.dtype)]
        return isinstance(new, Tensor) and any(torch.equal(x, new) for x in given)
    except Exception:  # of torch: it does not fit
        return False
