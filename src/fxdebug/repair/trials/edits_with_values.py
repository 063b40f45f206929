"""Edits that compute an operation of b with values that b makes elsewhere, in the place of those of a."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fxdebug.repair.rerun.replaced_operations import Ran, is_inplace
from fxdebug.repair.trials.edit_parts import as_laid_out
from fxdebug.repair.trials.edits_of_operations import EditOfBoth, NoEdit, computed_with, tensors_of


def by_itself(make: EditOfBoth, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Make an edit that needs no other values of b."""
    return make(theirs, ours)


def put_after(slot: int, at: int | None, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Return what an operation of a makes of a result of one of b, of that with a number where there are several."""
    result = ours.result if at is None else ours.result[at]
    made = _made_of(slot, theirs, result, own)
    return made if at is None else type(ours.result)([*ours.result[:at], made, *ours.result[at + 1 :]])


def put_before(slot: int, at: int, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation of b with one of its tensors replaced by what an operation of a makes of that."""
    if is_inplace(ours):
        raise NoEdit
    return computed_with(ours, {at: _made_of(slot, theirs, tensors_of(ours)[at], own)})


def _made_of(slot: int, theirs: Ran | None, tensor: Any, own: Mapping[int, Tensor]) -> Tensor:
    """Return what an operation of a makes of a tensor of b in the place of its own."""
    if theirs is None or is_inplace(theirs) or not isinstance(tensor, Tensor):
        raise NoEdit
    known = tensors_of(theirs)
    if slot >= len(known) or known[slot].shape != tensor.shape:
        raise NoEdit
    made = computed_with(theirs, {**own, slot: tensor})
    if not isinstance(made, Tensor) or made.shape != tensor.shape:
        raise NoEdit
    return made


def given_as_in_a(slots: Sequence[int], theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Compute an operation of b with the values that its counterpart in a was given."""
    if theirs is None or is_inplace(ours):
        raise NoEdit
    tensors, before = {**dict(enumerate(tensors_of(theirs))), **own}, tensors_of(ours)
    given = {slot: tensors[slot].to(before[slot].dtype) for slot in slots if slot in tensors and slot < len(before)}
    made = computed_with(ours, given)
    if isinstance(made, Tensor) and made.shape != ours.result.shape:
        raise NoEdit
    return made


def with_result_of_a(hides: bool, theirs: Ran | None, ours: Ran, own: Mapping[int, Tensor]) -> Any:
    """Return the table or mask that a makes, laid out as that of b: below 0 is hidden, where one is true or false."""
    made, before = None if theirs is None else theirs.result, ours.result
    if not isinstance(made, Tensor) or not isinstance(before, Tensor) or is_inplace(ours):
        raise NoEdit
    if before.dtype == torch.bool and made.is_floating_point():
        made = made < 0 if hides else made >= 0
    elif made.dtype == torch.bool and before.is_floating_point():
        made = torch.zeros_like(made, dtype=before.dtype).masked_fill(made == hides, before.min())
    if made.dtype != before.dtype:
        raise NoEdit
    if made.numel() < before.numel():
        made = made.expand(before.shape)
    return as_laid_out(made, before)
