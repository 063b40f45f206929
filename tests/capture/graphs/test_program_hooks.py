"""Hooks of the program's own that compute: what they do is in the graph of the body that makes the call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug

X, OTHER = torch.arange(8.0).view(2, 4) / 8, torch.arange(12.0).view(3, 4) / 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()) + x


class Steers:
    def __init__(self) -> None:
        self.direction = torch.ones(4)

    def __call__(self, module: nn.Module, given: Any, made: torch.Tensor) -> torch.Tensor:
        return made + 2 * self.direction * made.shape[0]


def with_raw_weight(layer: nn.Linear) -> nn.Linear:
    weight = layer.weight.detach()
    del layer.weight
    layer.raw, layer.scale = nn.Parameter(weight), nn.Parameter(torch.rand(4, 1))
    return layer


def makes_weight(net: Net) -> None:
    def make(module: Any, given: Any) -> None:
        module.weight = module.raw.tanh() * module.scale

    with_raw_weight(net.first).register_forward_pre_hook(make)


def makes_weight_past_modules_setattr(net: Net) -> None:
    def make(module: Any, given: Any) -> None:
        object.__setattr__(module, "weight", module.raw * module.scale)

    with_raw_weight(net.second).register_forward_pre_hook(make)


def adapts(net: Net) -> None:
    net.low, net.high = nn.Linear(4, 1), nn.Linear(1, 4)
    net.first.register_forward_hook(lambda module, given, made: made + net.high(net.low(given[0])))


def changes_keyword(net: Net) -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor, by: int = 1) -> torch.Tensor:
            return x * by

    net.scales = Scales()
    net.forward = lambda x: net.scales(net.first(x), by=2)  # type: ignore[method-assign]
    net.scales.register_forward_pre_hook(lambda module, args, named: (args, {"by": named["by"] + 2}), with_kwargs=True)


def for_every_module(net: Net) -> None:
    for module in (net.first, net.second):
        module.register_forward_pre_hook(lambda module, given: (given[0] * 3,))
        module.register_forward_hook(lambda module, given, made: made.sin() - given[0])


HOOKS: dict[str, Callable[[Net], object]] = {
    "steers": lambda net: net.first.register_forward_hook(Steers()),
    "of an adapter": adapts,
    "makes a weight": makes_weight,
    "makes a weight past setattr": makes_weight_past_modules_setattr,
    "changes a keyword": changes_keyword,
    "several": for_every_module,
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", HOOKS)
def test_what_hooks_of_the_program_compute_is_in_the_graph(kind: str, grad: bool) -> None:
    net = Net()
    HOOKS[kind](net)
    with torch.set_grad_enabled(grad):
        trace = fx_debug(net, X)
        assert {call.status for call in trace.calls} == {"verified"}, trace.root.reason
        for graph in (trace.root.fx, copy.copy(trace.root.fx)):
            for given in (X, OTHER):
                assert torch.equal(graph(given), net(given))


def test_a_hook_that_also_keeps_and_counts_sees_the_run_once() -> None:
    net, kept, counts = Net(), [], [0]

    def hook(module: nn.Module, given: Any, made: torch.Tensor) -> torch.Tensor:
        counts[0] += 1
        kept.append(made)
        return made * 2

    net.first.register_forward_hook(hook)
    trace = fx_debug(net, X)
    assert trace.root.status in ("verified", "recorded")  # the question makes the graphs
    assert counts == [1] and [type(each) for each in kept] == [torch.Tensor]
    assert torch.equal(kept[0], net.first(X) / 2)


def test_a_hook_that_only_watches_is_not_run_again() -> None:
    net, seen = Net(), []

    class Remembers:
        def __call__(self, module: nn.Module, given: Any, made: torch.Tensor) -> None:
            seen.append(type(made))

    net.first.register_forward_hook(Remembers())
    assert fx_debug(net, X).root.status == "verified" and seen == [torch.Tensor]


def test_a_hook_whose_effects_cannot_be_undone_leaves_a_recorded_graph(tmp_path: Any) -> None:
    net, path = Net(), tmp_path / "log"

    def hook(module: nn.Module, given: Any, made: torch.Tensor) -> torch.Tensor:
        with open(path, "a") as file:
            file.write("called\n")
        return made * 2

    net.first.register_forward_hook(hook)
    trace = fx_debug(net, X)
    assert trace.root.status == "recorded" and path.read_text() == "called\n"


def test_a_graph_made_without_a_hook_is_not_that_of_a_module_with_it() -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor, by: int = 1) -> torch.Tensor:
            return x * by

    class Calls(nn.Module):
        def __init__(self, by: int) -> None:
            super().__init__()
            self.by, self.scales = by, Scales()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scales(x, by=self.by)

    plain, hooked = Calls(10), Calls(2)
    hooked.scales.register_forward_pre_hook(lambda module, args, named: (args, {"by": 10}), with_kwargs=True)
    hooked.scales.register_forward_pre_hook(lambda module, args, named: (args, {"by": named["by"]}), with_kwargs=True)
    doubled = Calls(5)
    doubled.scales.register_forward_pre_hook(
        lambda module, args, named: (args, {"by": named["by"] * 2}), with_kwargs=True
    )
    for model in (plain, hooked, doubled, plain):
        trace = fx_debug(model, X)
        assert trace.root.status == "verified"
        for graph in (trace.root.fx, copy.copy(trace.root.fx)):
            assert torch.equal(graph(X), model(X))
