"""The digest of what a model returned: every tensor in it, its order, and nothing of other objects."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

from fxdebug.capture.runs.returned_bits import MOST, returned_bits


@pytest.mark.parametrize(
    "other",
    [torch.arange(4.0).flip(0), torch.arange(4.0, dtype=torch.float64), torch.arange(4.0).view(2, 2), torch.arange(4)],
    ids=["order", "dtype", "shape", "integers"],
)
def test_other_tensors_have_another_digest(other: torch.Tensor) -> None:
    assert returned_bits(torch.arange(4.0)) not in (None, returned_bits(other))


def test_the_digest_is_that_of_all_tensors_in_their_order() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.zeros(3)
    flat = returned_bits([x, y])
    for thing in ((x, (y,)), {"x": x, "y": y}, collections.OrderedDict(x=x, y=[y, None, "text"])):
        assert returned_bits(thing) == flat
    assert returned_bits((y, x)) != flat


@pytest.mark.parametrize(
    "thing",
    [None, object(), torch.ones(2, device="meta"), torch.eye(2).to_sparse(), torch.empty(1).expand(MOST)],
    ids=["nothing", "an object", "no data", "sparse", "large"],
)
def test_nothing_is_told_of_what_has_no_plain_data_or_is_large(thing: Any) -> None:
    assert returned_bits(thing) is None
