"""An edge leads from what made a tensor to what reads it, also where no argument hands it over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.query.edges import taken_past_arguments
from fxdebug.query.network import network_of


def past_arguments(trace: Trace) -> set[tuple[str, str]]:
    """Return the edges by which something is taken past all arguments; what reads it as its call."""
    edges = network_of(trace).edges
    return {(edge.source, edge.target.rpartition("/")[0]) for edge in edges if edge.kind == "memory"}


class Hypernetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.hyper = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), nn.Linear(2, 40)

    def weights(self, made: Tensor) -> dict[str, Tensor]:
        return {"0.weight": made[:32].view(8, 4), "0.bias": made[32:]}

    def forward(self, x: Tensor, z: Tensor) -> Any:
        return functional_call(self.net, self.weights(self.hyper(z)), (x,))


class OtherObjects(Hypernetwork):
    def weights(self, made: Tensor) -> dict[str, Tensor]:
        return {name: nn.Parameter(tensor) for name, tensor in super().weights(made).items()}


@pytest.mark.parametrize("kind", [Hypernetwork, OtherObjects])
def test_a_weight_that_is_given_for_one_call_comes_from_the_operation_that_made_it(kind: Any, tmp_path: Path) -> None:
    trace = fx_debug(kind(), (torch.randn(5, 4), torch.randn(2)), save=tmp_path / "run")
    name = kind.__name__
    for asked in (trace, fxdebug.load(tmp_path / "run")):
        assert past_arguments(asked) == {(f"{name}#0/view", "net.0#0"), (f"{name}#0/getitem_1", "net.0#0")}
        above = {node.id for node in asked.upstream("net.0#0/linear")}
        assert {"hyper#0", f"{name}#0/getitem", f"{name}#0/view", f"{name}#0/getitem_1"} <= above
    assert trace.paths("hyper", "net.1")


def test_a_call_takes_such_a_weight_through_all_calls_around_it() -> None:
    trace = fx_debug(Hypernetwork(), (torch.randn(5, 4), torch.randn(2)))
    taken = taken_past_arguments(network_of(trace))
    sources = ["Hypernetwork#0/view", "Hypernetwork#0/getitem_1"]
    assert {trace.calls[index].id: [each.source for each in found] for index, found in taken.items()} == {
        "net#0": sources, "net.0#0": sources,
    }  # fmt: skip


class FastWeights(nn.Module):
    """Two steps of gradient descent inside of a forward, as in MAML."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 1, bias=False)

    def forward(self, x: Tensor) -> Any:
        weights = dict(self.net.named_parameters())
        for _ in range(2):
            loss = functional_call(self.net, weights, (x,)).pow(2).mean()
            (gradient,) = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {"weight": weights["weight"] - 0.1 * gradient}
        return functional_call(self.net, weights, (x,))


def test_each_step_of_fast_weights_feeds_the_next_call() -> None:
    trace = fx_debug(FastWeights(), torch.randn(5, 4))
    assert past_arguments(trace) == {("FastWeights#0/sub", "net#1"), ("FastWeights#0/sub_1", "net#2")}


class GivenWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x: Tensor, weight: Tensor) -> Any:
        return functional_call(self.net, {"weight": weight}, (x,))


def test_a_weight_that_is_an_input_of_the_model_comes_from_that() -> None:
    trace = fx_debug(GivenWeight(), (torch.randn(5, 4), torch.randn(4, 4)))
    assert past_arguments(trace) == {("GivenWeight#0/weight", "net#0")}


class UsesItsWeightTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Any:
        return self.net(x) @ self.net.weight.float()


def test_a_weight_of_the_model_comes_from_nowhere_though_an_operation_returned_it() -> None:
    model = nn.Sequential(*[UsesItsWeightTwice() for _ in range(2)])
    model[1].net = model[0].net
    assert past_arguments(fx_debug(model, torch.randn(2, 4))) == set()


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.kept: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.skip = self.inner(x)
        self.kept["tanh"] = self.skip.tanh()
        return self.skip.relu()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x: Tensor) -> Tensor:
        y = self.encoder(x)
        return torch.cat([y, self.encoder.skip, self.encoder.kept["tanh"]], 1)


def test_what_a_call_left_in_an_attribute_comes_from_the_operation_that_made_it() -> None:
    trace = fx_debug(Decoder(), torch.randn(2, 4))
    edges = {(edge.source, edge.target) for edge in network_of(trace).edges if edge.kind == "memory"}
    assert edges == {("encoder.inner#0/linear", "Decoder#0/getattr_1"), ("encoder#0/tanh", "Decoder#0/getitem")}


class Cache:
    def __init__(self) -> None:
        self.state: Tensor | None = None


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        y = self.inner(x)
        cache.state = y if cache.state is None else cache.state + y
        return cache.state * 2


class Decoding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = Step()

    def forward(self, x: Tensor) -> Tensor:
        cache = Cache()
        return torch.cat([self.step(x + number, cache) for number in range(3)], 1)


def test_what_a_step_finds_in_a_cache_comes_from_the_step_that_put_it_there() -> None:
    trace = fx_debug(Decoding(), torch.randn(2, 4))
    assert {(source, target) for source, target in past_arguments(trace) if target.startswith("step")} == {
        ("step.inner#0/linear", "step#1"), ("step#1/add", "step#2"),
    }  # fmt: skip
