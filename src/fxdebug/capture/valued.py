"""Did what ran go by the values of tensors? Then it says nothing about other inputs of the same sizes."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fxdebug.capture.body import Body
from fxdebug.capture.coding import uids_in

_TAGS = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


class GoesByValues(TorchDispatchMode):
    """Finds operations that give numbers, or results whose sizes depend on values: torch says which these are."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.found and any(tag in func.tags for tag in _TAGS):
            self.found = func is not torch.ops.aten.index.Tensor or any(map(_is_mask, args[1]))
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Self:
        super().__enter__()
        return self


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def has_questions(body: Body) -> bool:
    """Does it, or a call in it, ask for numbers, or do something that cannot be followed?"""
    if body.hazard is not None or body.suspended is not None:
        return True
    return any(has_questions(entry.body) if entry.body is not None else _is_answer(entry.out) for entry in body.entries)


def _is_answer(out: Any) -> bool:
    return out is not None and next(uids_in(out), None) is None
