"""``call.fx`` on inputs of the same sizes that differ in something else: never another result than the module's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError
from support.trees import Does


def added_to_a_copy_or_to_itself(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """``contiguous`` gives back its input where that is contiguous already, and a copy elsewhere."""
    z = x * 1
    z.contiguous().add_(1)
    return z


def by_gradient(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if x.requires_grad else x * 2


def by_layout(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if x.is_contiguous() else x * 2


def by_class(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 3 if isinstance(x, nn.Parameter) else x * 2


OTHERS = [
    (added_to_a_copy_or_to_itself, torch.rand(3, 3).t()),
    (by_layout, torch.rand(3, 3).t()),
    (by_gradient, torch.rand(3, 3, requires_grad=True)),
    (by_class, nn.Parameter(torch.rand(3, 3), requires_grad=False)),
]


@pytest.mark.parametrize(("body", "other"), OTHERS, ids=[body.__name__ for body, _ in OTHERS])
def test_what_the_body_does_otherwise_for_is_refused(body, other):
    trace = fx_debug(Does(body), torch.rand(3, 3))
    assert trace.root.status == "verified"
    with pytest.raises(UsageError, match=r"^the graph of #0 does not hold here: "):
        trace.root.fx(other)


def test_another_layout_is_no_reason_to_refuse_by_itself():
    model = Does(lambda self, x: self.a(x).relu().sum(-1), a=nn.Linear(3, 3))
    graph = fx_debug(model, torch.rand(3, 3)).root.fx
    for other in (torch.rand(3, 3).t(), torch.rand(6, 3)[::2], torch.rand(1, 3).expand(3, 3)):
        assert torch.equal(graph(other), model(other))
