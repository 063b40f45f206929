"""An edit computes an operation from what b has: with tensors of a, it would repair anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug.comparison.result import KINDS, Row
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit, edits_of


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    one, other = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(seed))
    return one, other


WEIGHT = nn.Parameter(torch.randn(4, 4, generator=torch.Generator().manual_seed(9)))
CALLS: dict[str, tuple[Callable[..., Any], Callable[[Tensor, Tensor], tuple[Any, ...]]]] = {
    "tensors": (torch.add, lambda x, y: (x, y)),
    "a list of tensors": (torch.cat, lambda x, y: ([x, y], -1)),
    "a tuple of tensors": (torch.stack, lambda x, y: ((x, y),)),
    "tensors behind a text": (torch.einsum, lambda x, y: ("ij,jk->ik", x, y)),
    "a weight among tensors": (torch.addmm, lambda x, y: (x, y, WEIGHT)),
    "a list of tensors and weights": (torch.cat, lambda x, y: ([x, WEIGHT, y],)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS)
def test_no_edit_of_an_operation_takes_activations_of_a(kind: str, call: str) -> None:
    function, arguments = CALLS[call]
    given = arguments(*drawn(0))
    ours = Ran(function, given, {}, function(*given))
    theirs = [Ran(function, other, {}, function(*other)) for other in (arguments(*drawn(1)), arguments(*drawn(2)))]
    for words, make, _ in edits_of(Row("", kind=kind)):  # type: ignore[arg-type]
        try:
            one, other = (make(ran, ours) for ran in theirs)
        except NoEdit:
            continue
        assert torch.equal(one, other), words


@pytest.mark.parametrize("call", CALLS)
def test_an_operation_of_a_in_the_place_of_the_same_one_returns_what_that_returned(call: str) -> None:
    function, arguments = CALLS[call]
    given = arguments(*drawn(0))
    ours, other = Ran(function, given, {}, function(*given)), arguments(*drawn(1))
    (make,) = (make for words, make, _ in edits_of(Row("", kind="values")) if "in the place of" in words)
    assert torch.equal(make(Ran(function, other, {}, function(*other)), ours), ours.result)
