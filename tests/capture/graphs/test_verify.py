"""What makes a graph of one call a wrong one for another, and is noticed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import fxdebug
from support.reasons import reason_of
from support.watched import VERIFIED, Layer, saw, watched


def test_a_flag_that_changes_between_run_and_explanation_gives_no_wrong_graph() -> None:
    class Switched(Layer):
        def setup(self) -> None:
            self.flag = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) if self.flag else -self.l(x)

    model = Switched()
    trace = fxdebug.fx_debug(model, torch.ones(3, 8))
    model.flag = False
    assert trace.root.status == "recorded"
    assert reason_of(trace.root)[0] == "run again, it goes on with neg after all that ran"
    assert [op.op for op in trace.root.graph.ops] == ["placeholder", "Linear", "output"]  # type: ignore[union-attr]


def test_an_attribute_that_is_set_on_a_tensor_is_set_on_a_placeholder_too() -> None:
    class Sets(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            y.scale = 3.0  # type: ignore[attr-defined]
            return y * y.scale  # type: ignore[attr-defined]

    assert saw(Sets) == VERIFIED


def test_names_on_tensors_that_a_caller_set_are_not_on_placeholders() -> None:
    class Asks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * (2.0 if hasattr(x, "scale") else 1.0)

    def make() -> Any:
        x = torch.randn(3, 8)
        x.scale = 3.0  # type: ignore[attr-defined]
        return Asks(), x

    seen = watched(make)
    line = 'return self.l(x) * (2.0 if hasattr(x, "scale") else 1.0)'
    assert (seen.root.status, *reason_of(seen.root)) == (
        "recorded",
        "the constant 1.0 stands where 2.0 was, in mul",
        line,
    )


def test_a_layer_with_a_constant_that_only_compares_equal_has_a_graph_of_its_own() -> None:
    class Scales(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    seen = watched(lambda: (nn.Sequential(Scales(0.0), nn.ReLU(), Scales(-0.0)), torch.randn(3, 8)))
    assert seen.not_verified() == {}
    assert ["-0.0" in seen.call(path).code for path in ("0", "2")] == [False, True]


def test_a_layer_that_returns_its_keys_in_another_order_has_a_graph_of_its_own() -> None:
    class Returns(nn.Module):
        def __init__(self, keys: str) -> None:
            super().__init__()
            self.keys = keys

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            found = {"a": x + 1, "b": x + 2}
            return {key: found[key] for key in self.keys}

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Returns("ab"), Returns("ba")

        def forward(self, x: torch.Tensor) -> Any:
            return self.first(x), self.second(x)

    seen = watched(lambda: (Parent(), torch.randn(3, 8)))
    assert seen.not_verified() == {}
    with torch.no_grad():
        assert list(seen.call("second").fx(torch.randn(3, 8))) == ["b", "a"]


COEFFICIENTS = [torch.arange(8.0), torch.ones(8)]  # as a library holds them


def test_a_tensor_of_a_global_that_an_operation_passes_on_may_be_kept_there() -> None:
    class Converts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = [each.to(x.device) for each in COEFFICIENTS]
            return self.l(x) * first + second.float()

    class LaysOut(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * COEFFICIENTS[0].contiguous()

    for kind in (Converts, LaysOut):
        assert saw(kind) == VERIFIED


def test_code_that_asks_for_the_type_of_a_size_gets_an_integer() -> None:
    class Asks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = {int: 2.0}.get(type(x.shape[0]), 3.0)
            return self.l(x) * scale

    class AsksForATuple(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * (2 if type(x.size()) is torch.Size else 3)

    for kind in (Asks, AsksForATuple):
        seen = watched(lambda kind=kind: (kind(), torch.ones(3, 8)))  # type: ignore[misc]
        assert (seen.root.status, seen.root.reason) == ("verified", "every size is as it was in this call")
