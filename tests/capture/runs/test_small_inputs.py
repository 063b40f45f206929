"""Copies of small inputs: those of plain data, which the program may change afterwards."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

import fxdebug
from fxdebug.capture.runs.small_inputs import MOST, small_inputs


def test_copies_are_those_of_the_time_of_the_run() -> None:
    x = torch.ones(2, requires_grad=True)
    given = small_inputs((x, [None, "text", {"k": (1, 2.5)}]), {"mask": torch.tensor([True])})
    assert given is not None
    with torch.no_grad():
        x.mul_(3)
    (copy, rest), keywords = given
    assert copy.tolist() == [1.0, 1.0] and copy.requires_grad and copy.is_leaf
    assert rest == [None, "text", {"k": (1, 2.5)}] and keywords["mask"].tolist() == [True]


@pytest.mark.parametrize(
    "thing",
    [object(), torch.zeros(MOST // 4 + 1), torch.nn.Parameter(torch.ones(2)), torch.ones(2, device="meta"),
     collections.OrderedDict(), [torch.eye(2).to_sparse()]],
    ids=["an object", "too large", "a parameter", "no data", "a class of its own", "sparse"],
)  # fmt: skip
def test_what_is_large_or_no_plain_data_is_not_kept(thing: Any) -> None:
    assert small_inputs((thing,), {}) is None


def test_a_trace_that_is_copied_has_none() -> None:
    import copy

    trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))
    assert getattr(trace.graph_source, "given", None) is not None
    assert getattr(copy.copy(trace).graph_source, "given", None) is None
