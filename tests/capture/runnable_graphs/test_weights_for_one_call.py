"""A body may call a module with other weights than its own: the graph does so, too, and puts the module's back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fxdebug import UsageError, fx_debug
from support.trees import Does


def linear() -> nn.Module:
    return nn.Linear(4, 4)


def generated(self: Any, x: torch.Tensor) -> Any:
    weight = self.generator(x.mean(0)).view(4, 4)
    return functional_call(self.a, {"weight": weight}, (x,)) + self.a(x)


def one_step_of_learning(self: Any, x: torch.Tensor) -> Any:
    with torch.enable_grad():
        weights = dict(self.a.named_parameters())
        loss = functional_call(self.a, weights, (x,)).pow(2).mean()
        gradients = torch.autograd.grad(loss, list(weights.values()))
        learned = {name: weights[name] - 0.1 * each for name, each in zip(weights, gradients)}
        return functional_call(self.a, learned, (x,))


def twice(self: Any, x: torch.Tensor) -> Any:
    y = functional_call(self.a, {"weight": self.a.weight * x.sum()}, (x,))
    return self.a(functional_call(self.a, {"bias": y.mean(0)}, (x,))) + y


def set_and_put_back(self: Any, x: torch.Tensor) -> Any:
    own, self.a.weight = self.a.weight, self.b.weight
    y = self.a(x)
    self.a.weight = own
    return y


def deleted_and_put_back(self: Any, x: torch.Tensor) -> Any:
    own, scaled = self.a.weight, self.a.weight * x.std()
    del self.a.weight
    self.a.weight = scaled
    y = self.a(x)
    del self.a.weight
    self.a.weight = own
    return y


def caught(self: Any, x: torch.Tensor) -> Any:
    try:
        return functional_call(self.raises, {"weight": x.mean(0)}, (x,))
    except ValueError:
        return self.a(x)


class Raises(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not this one")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


BODIES: dict[str, Callable[[], nn.Module]] = {
    "computed": lambda: Does(lambda s, x: functional_call(s.a, {"weight": s.a.weight * x.mean()}, (x,)), a=linear()),
    "made by a network": lambda: Does(generated, a=linear(), generator=nn.Linear(4, 16)),
    "of another module": lambda: Does(
        lambda s, x: functional_call(s.a, dict(s.b.named_parameters()), (x,)) + s.a(x), a=linear(), b=linear()
    ),
    "from a dict": lambda: Does(
        lambda s, x: functional_call(s.a, s.kept, (x,)), a=linear(), kept={"weight": torch.randn(4, 4)}
    ),
    "deep inside": lambda: Does(
        lambda s, x: functional_call(s.a, {k: v - 0.1 * x.sum() for k, v in s.a.named_parameters()}, (x,)),
        a=nn.Sequential(linear(), nn.Tanh(), linear()),
    ),
    "tied": lambda: Does(lambda s, x: functional_call(s.a, {"first.weight": x.T @ x}, (x,)), a=Tied()),
    "a buffer": lambda: Does(lambda s, x: functional_call(s.a, {"running_mean": x.mean(0)}, (x,)), a=nn.BatchNorm1d(4)),
    "one step of learning": lambda: Does(one_step_of_learning, a=linear()),
    "twice": lambda: Does(twice, a=linear()),
    "set and put back": lambda: Does(set_and_put_back, a=linear(), b=linear()),
    "deleted and put back": lambda: Does(deleted_and_put_back, a=linear()),
    "around an exception": lambda: Does(caught, a=linear(), raises=Raises(4, 4)),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_graph_calls_a_module_with_the_weights_that_its_body_gives_it(name: str) -> None:
    torch.manual_seed(0)
    model = BODIES[name]().eval()
    call = fx_debug(model, torch.randn(3, 4)).root
    before = {name: (id(tensor), tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    assert call.status == "verified", call.reason
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        expected = model(x)
        assert torch.equal(call.fx(x), expected)
        assert torch.equal(copy.copy(call.fx)(x), expected)
    after = model.state_dict(keep_vars=True)
    assert {name: id(tensor) for name, tensor in after.items()} == {name: before[name][0] for name in before}
    assert all(torch.equal(after[name], tensor) for name, (_, tensor) in before.items())


class Chooses(nn.Module):
    """Computes a weight, and uses it or not."""

    def __init__(self, uses: Any) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.uses = uses

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.a.weight * x.mean()
        return functional_call(self.a, {"weight": weight}, (x,)) if self.uses else self.a(x)


@pytest.mark.parametrize("used", [(0, 1, 0), (1, 0, 1), ([], [1], [])])
def test_a_module_that_uses_its_own_weight_has_a_graph_of_its_own(used: tuple[Any, ...]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*map(Chooses, used))
    trace = fx_debug(model, torch.randn(3, 4))
    x = torch.randn(3, 4)
    for layer, call in zip(model, trace.root.children):
        assert call.status == "verified"
        assert torch.equal(copy.copy(call.fx)(x), layer(x)) and torch.equal(call.fx(x), layer(x))


class ForPositive(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return super().forward(x)


def test_the_weights_are_put_back_where_the_call_raises() -> None:
    model = Does(lambda s, x: functional_call(s.a, {"weight": s.a.weight * 2}, (x,)), a=ForPositive(4, 4))
    call, own = fx_debug(model, torch.ones(3, 4)).root, model.a.weight
    with pytest.raises((ValueError, UsageError), match="negative"):
        call.fx(-torch.ones(3, 4))
    assert model.a.weight is own
    assert torch.equal(call.fx(torch.ones(2, 4)), model(torch.ones(2, 4)))
