"""Weights that hold the numbers of other ones, in a port with other names, are paired with those of their places."""

from __future__ import annotations

import torch
from torch import nn

import fxdebug


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 6)
        self.gate = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return self.up(x) * self.gate(x).sigmoid()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Layer()
        self.middle = nn.Linear(6, 6)
        self.second = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.first(x)
        return x + self.second(self.middle(x))


class OtherLayer(nn.Module):
    """The same as ``Layer`` with other names; its weights are made in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.LayerNorm(6)
        self.c = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        return self.b(x) * self.c(x).sigmoid()


class Port(nn.Module):
    def __init__(self, layer: type[nn.Module] = Layer) -> None:
        super().__init__()
        self.one = layer()
        self.two = nn.Linear(6, 6)
        self.three = layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.one(x)
        return x + self.three(self.two(x))


class PortThatCallsAnother(Port):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.three(x)
        return x + self.one(self.two(x))


def built(port: Port) -> tuple[Model, Port]:
    torch.manual_seed(1)
    model = Model()
    for weight in model.parameters():
        nn.init.normal_(weight, 1.0 if weight.dim() < 2 else 0.0, 0.5)
    port.load_state_dict(dict(zip(port.state_dict(), model.state_dict().values(), strict=True)))
    return model, port


def told(model: nn.Module, port: nn.Module) -> list[tuple[str, str | None, str]]:
    found = fxdebug.compare_models(model, port, torch.randn(3, 6, generator=torch.Generator().manual_seed(2)))
    return [(row.path, row.kind, row.because) for row in found.findings]


def test_two_exchanged_weights_are_told_as_weights_of_both_places() -> None:
    model, port = built(Port())
    port.one.norm.weight, port.three.norm.weight = port.three.norm.weight, port.one.norm.weight  # type: ignore[union-attr]
    first = "one.norm.weight is second.norm.weight of a, not first.norm.weight: exchanged with three.norm.weight"
    second = "three.norm.weight is first.norm.weight of a, not second.norm.weight: exchanged with one.norm.weight"
    assert told(model, port) == [("one.norm", "weights", first), ("three.norm", "weights", second)]


def test_two_exchanged_weights_that_are_used_one_after_the_other_are_told_as_such() -> None:
    model, port = built(Port())
    layer = port.one
    layer.up.weight, layer.gate.weight = layer.gate.weight, layer.up.weight  # type: ignore[union-attr]
    first = "one.up.weight is first.gate.weight of a, not first.up.weight: exchanged with one.gate.weight"
    second = "one.gate.weight is first.up.weight of a, not first.gate.weight: exchanged with one.up.weight"
    assert told(model, port) == [("one.up", "weights", first), ("one.gate", "weights", second)]


def test_the_weights_of_another_layer_are_told_by_its_name() -> None:
    model, port = built(Port())
    port.one.up.weight = nn.Parameter(model.second.up.weight.detach().clone())  # type: ignore[union-attr]
    because = "one.up.weight is second.up.weight of a, not first.up.weight"
    assert told(model, port) == [("one.up", "weights", because)]


def test_a_module_that_is_called_in_the_place_of_another_one_is_told_as_a_call() -> None:
    model, port = built(PortThatCallsAnother())
    kinds = {kind for _, kind, _ in told(model, port)}
    assert "wiring" in kinds and "weights" not in kinds


def test_weights_that_are_made_in_another_order_are_no_finding() -> None:
    model = built(Port())[0]
    other = Port(OtherLayer)
    for mine, theirs in ((other.one, model.first), (other.three, model.second)):
        for name, source in (("a", theirs.norm), ("b", theirs.up), ("c", theirs.gate)):
            mine.get_submodule(name).load_state_dict(source.state_dict())
    other.two.load_state_dict(model.middle.state_dict())
    assert told(model, other) == []
