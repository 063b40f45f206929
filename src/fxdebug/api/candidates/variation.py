"""Another way to compute an operation, and whether it changes what the operation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.pausing.replaced_operations import Ran
from fxdebug.capture.torch_state import internals

Change: TypeAlias = Callable[[Ran], Any]
"""Computes another result from what an operation was given."""


@dataclass(frozen=True)
class Variation:
    """Another way to compute an operation.

    ``because`` says what differs, with the operation in the place of ``{op}``; ``edit`` is the change in words.
    ``factors`` are those of a view, counted from the end, that it takes in the other order, with what it splits first.
    """

    because: str
    edit: str
    change: Change
    factors: tuple[int, bool] | None = None


def changes_something(variation: Variation, ran: Ran) -> bool:
    """Does a variation return anything else than the operation did, of the same shapes and dtypes?"""
    try:
        made = variation.change(ran)
    except Exception:  # of torch: it does not fit
        return False
    own, new = (internals.tree_leaves(each) for each in (ran.result, made))
    if len(own) != len(new) or not all(isinstance(each, Tensor) for each in (*own, *new)):
        return False
    sides = list(zip(own, new))
    alike = all(x.shape == y.shape and x.dtype == y.dtype for x, y in sides)
    return alike and not all(torch.equal(x, y) for x, y in sides)
