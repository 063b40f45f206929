"""The cause of infinities that one operation made."""

from __future__ import annotations

import torch

from fxdebug.data.values import Value
from fxdebug.operators.nonfinite_cause import find_cause
from fxdebug.stats.measure import measure


def value_of(tensor: torch.Tensor) -> Value:
    return Value(0, tuple(tensor.shape), str(tensor.dtype)[6:], "cpu", stats=measure(tensor))


def test_an_overflow_of_a_mask_is_intended_and_one_of_scores_is_not() -> None:
    lowest = torch.tensor([0.0, torch.finfo(torch.float16).min], dtype=torch.float16)
    mask, scores = value_of(lowest), value_of(torch.tensor([-6e4, 1.0], dtype=torch.float16))
    made = value_of(torch.tensor([0.0, -torch.inf], dtype=torch.float16))
    assert find_cause("add", (), [mask, mask], [made]).kind == "intended"
    assert find_cause("add", (), [scores, scores], [made]).kind == "inf"
