"""Integers that a caller computes from sizes are sizes in the graph of the call, too: it runs on other sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import UsageError, fx_debug

X = torch.arange(12.0).view(3, 4)
OTHER = torch.arange(20.0).view(5, 4)


class Body(nn.Module):
    def __init__(self, body: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)


@dataclass
class Grid:
    height: int
    width: int


class Scatters(nn.Module):
    """Sums rows by number, as the aggregations of graph libraries do."""

    def forward(self, x: torch.Tensor, index: torch.Tensor, dim_size: int | None = None) -> torch.Tensor:
        return x.new_zeros(dim_size, x.shape[1]).index_add(0, index, x)


class Asks(nn.Module):
    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return x * 2 if count > 1 else x


def zeros(self: Any, x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.cat([x, x.new_zeros(n, 4)])


ZEROS = Body(zeros)
PASSED: dict[str, tuple[Any, ...]] = {
    "a size": (lambda self, x: self.c(x, x.shape[0]), ZEROS),
    "a size by name": (lambda self, x: self.c(x, n=x.size(0)), ZEROS),
    "computed from sizes": (lambda self, x: self.c(x, x.numel() // x.shape[1] + 2), ZEROS),
    "two sizes": (lambda self, x: self.c(x, *x.shape), Body(lambda self, x, h, w: x.t().reshape(w * h))),
    "a tuple": (lambda self, x: self.c(x, (x.shape[0], 4)), Body(lambda self, x, hw: x.t().reshape(*hw))),
    "a torch.Size": (lambda self, x: self.c(x, x.shape), Body(lambda self, x, size: torch.ones(size) * x)),
    "a part of a torch.Size": (lambda self, x: self.c(x, x.shape[:1]), Body(lambda self, x, s: x.sum(1).view(s))),
    "a list": (lambda self, x: self.c(x, [x.shape[0], None]), Body(lambda self, x, s: zeros(self, x, s[0]))),
    "a dict": (lambda self, x: self.c(x, {"n": x.shape[0]}), Body(lambda self, x, s: zeros(self, x, s["n"]))),
    "a dataclass": (
        lambda self, x: self.c(x, Grid(x.shape[0], 4)), Body(lambda self, x, g: x.t().reshape(g.height, g.width)),
    ),
    "passed on": (lambda self, x: self.c(x, x.shape[0]), Body(lambda self, x, n: self.d(x, n + 1), d=ZEROS)),
    "the number of rows": (
        lambda self, x: self.c(x, torch.arange(x.shape[0]).flip(0), dim_size=x.shape[0]), Scatters(),
    ),
    "asked about": (lambda self, x: self.c(x, x.shape[0]), Asks()),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSED)
def test_the_graph_of_every_call_runs_on_another_batch(name: str) -> None:
    body, child = PASSED[name]
    model = Body(body, c=child)
    trace = fx_debug(model, X)
    given: dict[str, Any] = {}
    handles = [
        module.register_forward_hook(
            lambda module, args, kwargs, out, path=path: given.update({path: (args, kwargs, out)}), with_kwargs=True
        )
        for path, module in model.named_modules()
    ]
    model(OTHER)
    for handle in handles:
        handle.remove()
    for call in trace.calls:
        assert call.status == "verified", call.reason
        args, kwargs, out = given[call.path]
        assert torch.equal(call.fx(*args, **kwargs), out)


def test_an_integer_that_is_no_size_stays_a_constant() -> None:
    call = fx_debug(Body(lambda self, x: self.c(x, 3), c=ZEROS), X).find("c")[0]
    with pytest.raises(UsageError, match="it holds for the argument 3, not for 4"):
        call.fx(X, 4)


def test_another_answer_about_the_size_is_refused() -> None:
    call = fx_debug(Body(PASSED["asked about"][0], c=Asks()), X).find("c")[0]
    assert [(guard.what, guard.answer) for guard in call.guards] == [("3 > 1", "True")]
    assert torch.equal(call.fx(X, 2), X * 2)
    with pytest.raises(UsageError, match="does not hold here"):
        call.fx(X[:1], 1)


@pytest.mark.parametrize("given", [True, 2.0, None, torch.tensor(3)])
def test_what_is_no_integer_is_refused(given: Any) -> None:
    call = fx_debug(Body(PASSED["a size"][0], c=ZEROS), X).find("c")[0]
    with pytest.raises(UsageError, match="a whole number is expected"):
        call.fx(X, given)


class Strict(nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        assert type(n) is int
        return x.new_zeros(n)


def test_a_body_that_needs_an_integer_of_pythons_own_gets_one() -> None:
    call = fx_debug(Body(PASSED["a size"][0], c=Strict()), X).find("c")[0]
    assert call.status == "verified", call.reason
    assert torch.equal(call.fx(X, 3), torch.zeros(3))


def test_one_class_called_with_sizes_and_with_constants_has_two_graphs() -> None:
    model = Body(lambda self, x: self.a(x, 3) + self.b(x, x.shape[0]), a=Body(zeros), b=Body(zeros))
    trace = fx_debug(model, X)
    a, b = trace.find("a")[0], trace.find("b")[0]
    assert torch.equal(b.fx(X, 5), zeros(None, X, 5))
    with pytest.raises(UsageError, match="it holds for the argument 3"):
        a.fx(X, 5)


def test_the_size_is_an_argument_of_the_graph_and_of_its_code() -> None:
    trace = fx_debug(Body(PASSED["the number of rows"][0], c=Scatters()), X)
    call = trace.find("c")[0]
    assert call.graph is not None
    placeholders = [op.name for op in call.graph.ops if op.kind == "placeholder"]
    assert placeholders == ["x", "index", "dim_size"]
    assert "def forward(self, x, index, dim_size)" in call.fx.code
    plain = copy.deepcopy(call.fx)
    numbers = torch.tensor([0, 1, 1, 6, 2])
    assert torch.equal(plain(OTHER, numbers, 7), Scatters()(OTHER, numbers, 7))
    edges = [(source, target) for source, target in trace.graph.edges() if target == "c#0/dim_size"]
    assert len(edges) == 1 and "size" in edges[0][0]
