"""Tensors that an operation gives another shape or memory in place."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError
from support.same import difference
from support.watched import Layer, watched


class TransposesIt(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x


BODIES: dict[str, Any] = {
    "t_": lambda self, x: self.l(x).t_() @ x,
    "unsqueeze_ and back": lambda self, x: (y := self.l(x)).unsqueeze_(0).squeeze_(0) + y.shape[0],
    "sizes before and after": lambda self, x: (
        (y := x * 2),
        before := y.shape[0],
        y.t_(),
        y.reshape(before, -1) * y.shape[0] + y.numel(),
    )[-1],
    "a view taken before": lambda self, x: ((y := x * 2), (z := y[1:]), y.transpose_(0, 1), z.sum(0) + y.sum(1))[-1],
    "a branch on the shape": lambda self, x: self.l(x).swapaxes_(0, 1).sum(0) if x.dim() == 2 else x,
    "resize_": lambda self, x: self.l(torch.empty(0).resize_(x.shape).copy_(x)),
    "resize_as_": lambda self, x: torch.empty(2).resize_as_(x).fill_(3) + x,
    "resize_ to less": lambda self, x: (y := x * 2).resize_(2, 8).sum(0) + len(y),
    "out= of nothing": lambda self, x: torch.add(x, 1, out=(y := torch.empty(0))) * y.shape[0] + y,
    "out= of nothing, twice": lambda self, x: (
        y := torch.empty(0),
        torch.add(x, 1, out=y),
        torch.mul(self.l(x), y, out=torch.empty(0)) + y.dim(),
    )[-1],
}


def model_of(body: Any) -> nn.Module:
    model = type("Body", (Layer,), {"forward": body})()
    model.transposes = TransposesIt()
    return model.eval()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_the_body_is_verified_and_its_graph_right_for_other_sizes(name: str) -> None:
    found = watched(lambda: (model_of(BODIES[name]), torch.randn(3, 8)))
    assert found.not_verified() == {}
    model = model_of(BODIES[name])
    with torch.no_grad():
        root = fx_debug(model, torch.randn(3, 8)).root
        x = torch.randn(3, 8)
        assert difference(root.fx(x), model(x)) is None
        for x in (torch.randn(5, 8), torch.randn(8, 8)):
            with contextlib.suppress(UsageError):
                assert difference(root.fx(x), model(x)) is None


CALLERS: dict[str, Any] = {
    "returned": lambda self, x: self.transposes(x * 2).sum(0) + 1,
    "asked for": lambda self, x: (y := self.transposes(x * 2)).sum(0) + y.shape[0],
    "passed": lambda self, x: ((y := x * 2), self.transposes(y), y.sum(0) + len(y))[-1],
}


@pytest.mark.parametrize("name", CALLERS)
def test_a_call_that_reshapes_what_it_was_given_gives_its_caller_no_wrong_graph(name: str) -> None:
    found = watched(lambda: (model_of(CALLERS[name]), torch.randn(3, 8)))
    assert found.call("transposes").status == "verified"
    assert found.root.status == ("verified" if name == "returned" else "recorded")


def test_another_memory_of_a_tensor_is_named() -> None:
    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.l(torch.empty(0).set_(x.clone()))  # type: ignore[no-any-return]

    root = fx_debug(model_of(body), torch.randn(3, 8)).root
    assert root.status == "recorded"
    assert root.reason.startswith("a tensor can be changed unseen through set_()")
