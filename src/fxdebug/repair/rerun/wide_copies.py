"""Compare copies of two models in float32, where the narrow dtype of one of them hides how they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from fxdebug.capture.runs.same_start import deep_copy
from fxdebug.capture.torch_state.module_members import parameters_of
from fxdebug.comparison.result import ComparisonData
from fxdebug.operators.dtypes import EPS

MOST_COPIED = 1 << 28  # parameters of two models that are copied in float32: 1 GiB
LEAST_SHARE = 1 / 64  # of the narrow dtype's rounding: what differs by less is no fault of a model in that dtype


def in_wide_dtype(
    found: ComparisonData, a: nn.Module, b: nn.Module, compared: Callable[[nn.Module, nn.Module], ComparisonData]
) -> ComparisonData:
    """Return what both models with rounded weights, in the wider dtype, show where the narrow one hides it.

    >>> import torch, fxdebug
    >>> model = torch.nn.Linear(2, 2)
    >>> found = fxdebug.compare(fxdebug.fx_debug(model, torch.ones(1, 2)), fxdebug.fx_debug(model, torch.ones(1, 2)))
    >>> in_wide_dtype(found, model, model, lambda a, b: found) is found  # none of them is in a narrow dtype
    True
    """
    try:
        wide = _widened(a, b)
        if wide is None:
            return found
        again = compared(*wide)
    except Exception:  # of a model that cannot be cast, or whose code asks for the narrow dtype
        return found
    least = LEAST_SHARE * EPS[found.narrow] if found.narrow in EPS else 0.0
    if all(row.error < least for row in again.findings):
        return found
    note = f"told in float32, of copies of both models whose weights are rounded to {found.narrow}"
    return replace(again, notes=(*again.notes, note))


def _widened(a: nn.Module, b: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """Return copies of two models in float32, with weights rounded to the narrower dtype of one of them.

    The one rounding of each weight is then no difference, and results are compared as closely as in float32. ``None``
    where not exactly one of them is in a narrow dtype, or they are too large to copy.
    """
    narrow = _narrow(a, b)
    if narrow is None or sum(x.numel() for model in (a, b) for x in parameters_of(model)) > MOST_COPIED:
        return None
    one, other = deep_copy(a), deep_copy(b)
    if one is a or other is b:  # they cannot be copied
        return None
    return one.to(narrow).float(), other.to(narrow).float()


def _narrow(a: nn.Module, b: nn.Module) -> torch.dtype | None:
    """Return the narrow dtype of one of two models, of which the other one is in float32."""
    dtypes = [{x.dtype for x in parameters_of(model) if x.is_floating_point()} for model in (a, b)]
    narrow = [kinds for kinds in dtypes if kinds in ({torch.bfloat16}, {torch.float16})]
    return next(iter(narrow[0])) if len(narrow) == 1 and {torch.float32} in dtypes else None
