"""Steps of a quantised weight that are too coarse for parts of it, beside weights whose steps are right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fxdebug.analyses.quantisation.coarse import finer_steps


def weight(*, large: slice | None = None, rows: bool = False) -> Tensor:
    made = torch.randn(32, 128, generator=torch.Generator().manual_seed(0))
    if large is not None:
        (made if rows else made.T)[large] *= 12
    return made


def rounded(one: Tensor, steps: int, size: int = 0, *, whole: bool = False) -> Tensor:
    groups = one.reshape(len(one), -1, size or one.shape[1])
    step = groups.abs().amax((0, 1, 2) if whole else -1, keepdim=True) / steps
    return ((groups / step).round() * step).reshape_as(one)


@pytest.mark.parametrize(("size", "at"), [(64, slice(0, 64)), (32, slice(0, 32)), (16, slice(96, 112))])
def test_one_step_for_a_row_with_a_large_block_is_too_coarse(size: int, at: slice) -> None:
    one = weight(large=at)
    finer = finer_steps(one, rounded(one, 7))
    assert finer is not None
    assert (finer.steps, finer.parts) == ("one step for each row", f"block of {size} columns")
    assert (finer.before > 0.4, finer.after < 0.2) == (True, True)
    assert torch.allclose(finer.weight, rounded(one, 7, size))


def test_one_step_for_a_weight_with_large_rows_is_too_coarse() -> None:
    one = weight(large=slice(0, 4), rows=True)
    finer = finer_steps(one, rounded(one, 7, whole=True))
    assert finer is not None
    assert (finer.steps, finer.parts) == ("one step for the whole weight", "row")
    assert torch.allclose(finer.weight, rounded(one, 7))


def test_steps_that_are_fine_enough_or_finer_already_and_dtypes_without_steps_are_none() -> None:
    assert finer_steps(weight(), rounded(weight(), 7)) is None
    assert finer_steps(weight(), rounded(weight(), 7, whole=True)) is None
    one = weight(large=slice(0, 32))
    assert finer_steps(one, rounded(one, 127)) is None  # 8 bits
    assert finer_steps(one, rounded(one, 7, 32)) is None
    assert finer_steps(one, one.bfloat16().float()) is None
    assert finer_steps(one, torch.zeros_like(one)) is None
