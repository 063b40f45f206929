"""What an operation is given besides tensors: what is told of it where two runs part ways there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug import fx_debug

Forward = Callable[[Tensor], Tensor]


class Only(nn.Module):
    """One function as a model."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def first(a: nn.Module, b: nn.Module, x: Tensor, values: str = "tensors") -> Any:
    with torch.no_grad():
        return fxdebug.compare(fx_debug(a, x, values=values), fx_debug(b, x, values=values)).first


def table() -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def resized(**how: Any) -> Forward:
    return lambda x: F.interpolate(x[None, None], mode="bilinear", **how)


CASES: dict[str, tuple[str, Forward, Forward, str]] = {
    "softmax, a zero": ("softmax", lambda x: x.softmax(0), lambda x: x.softmax(-1), "0.0 in a, -1.0 in b"),
    "softmax, by name in b": (
        "softmax", lambda x: x.softmax(0), lambda x: F.softmax(x, dim=-1), "0.0 in a, dim=-1.0 in b",
    ),
    "masked_fill": (
        "masked_fill", lambda x: x.masked_fill(x > 0, 0), lambda x: x.masked_fill(x > 0, 1), "0.0 in a, 1.0 in b",
    ),
    "gt": ("gt", lambda x: (x > 0).float(), lambda x: (x > 0.3).float(), "0.0 in a, 0.3 in b"),
    "hardtanh": (
        "hardtanh", lambda x: F.hardtanh(x, 0, 1), lambda x: F.hardtanh(x, -1, 1),
        "min_val=0.0 in a, min_val=-1.0 in b",
    ),
    "clamp, a ReLU": ("clamp", lambda x: x.clamp(min=0), lambda x: x.clamp(min=-1), "min=0.0 in a, min=-1.0 in b"),
    "clamp, from above": ("clamp", lambda x: x.clamp(max=0), lambda x: x.clamp(max=1), "max=0.0 in a, max=1.0 in b"),
    "interpolate": (
        "interpolate", resized(scale_factor=2, align_corners=False), resized(size=(8, 16), align_corners=True),
        "align_corners=False in a, align_corners=True in b",
    ),
    "a switch left out": (
        "topk", lambda x: x.topk(3)[0], lambda x: x.topk(3, largest=False)[0], "largest=True in a, largest=False in b",
    ),
    "a switch by position": (
        "sort", lambda x: x.sort(-1)[0], lambda x: x.sort(-1, True)[0], "descending=False in a, descending=True in b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_reason_names_the_argument_as_it_is_on_both_sides(name):
    op, a, b, because = CASES[name]
    found = first(Only(a), Only(b), table())
    assert (found.op, found.kind, found.because) == (op, "constant", because)


def test_a_clamp_at_zero_is_a_relu_from_below_and_none_from_above():
    for clamped in (lambda x: x.clamp(min=0), lambda x: x.clamp(0, None), lambda x: x.clamp_min(0)):
        assert first(Only(torch.relu), Only(clamped), table()) is None
    found = first(Only(torch.relu), Only(lambda x: x.clamp(max=0)), table())
    assert (found.op, found.because) == ("clamp", "relu in a, clamp in b")
