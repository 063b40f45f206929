"""A module registered under an empty name is called by itself: torch takes its path for that of its parent."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from support.trees import Does, linear, ones


def outer(inner: nn.Module) -> nn.Module:
    return Does(lambda self, x: self.inner(x) * 2, inner=inner)


@pytest.mark.parametrize("around", [lambda model: model, outer], ids=["in the model", "below it"])
def test_the_graph_calls_the_module_and_not_its_parent(around) -> None:
    model = around(Does(lambda self, x: self._modules[""](x) + 1, **{"": linear()}))
    trace = fx_debug(model, ones())
    for call in trace.calls:
        assert call.status == "verified"
    assert trace.root.fx is not None
    assert torch.equal(trace.root.fx(ones(3)), model(ones(3)))
