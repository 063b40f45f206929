"""What a call of the model returned is compared, also where its class or a hook computes after ``forward``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare, compare_models, fx_debug, load, model_addition_debugger_context


class Net(nn.Module):
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return self.down(torch.relu(self.up(x)))


class Scaled(Net):
    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x) * self.factor


class InCallImpl(Net):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_impl(*args, **kwargs) * self.factor


class InPlace(Net):
    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x).mul_(self.factor)


class AsNumber(Net):
    def __call__(self, x: Tensor) -> Any:
        return (super().__call__(x) * self.factor).sum().item()


class Twice(Net):
    def __call__(self, x: Tensor) -> Any:
        return super().__call__(super().__call__(x)) * self.factor


class Before(Net):
    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x * self.factor)


@dataclass
class Result:
    y: Tensor


class Wrapped(Net):
    def __call__(self, x: Tensor) -> Any:
        return Result(super().__call__(x) * self.factor)


class Filled(Net):
    """The dictionary that forward returns gets another value."""

    def forward(self, x: Tensor) -> Any:
        return {"y": super().forward(x)}

    def __call__(self, x: Tensor) -> Any:
        found = super().__call__(x)
        found["y"] = found["y"] * self.factor
        return found


class InForward(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.factor


class Hooked(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(lambda module, given, made: made * self.factor, always_call=True)


class OnInstance(Net):
    """The method stands on the instance, as tools put it there."""

    def __init__(self) -> None:
        super().__init__()
        usual = super()._call_impl
        self.__dict__["_call_impl"] = lambda *args, **kwargs: usual(*args, **kwargs) * self.factor


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
ALL = (Scaled, InCallImpl, InPlace, AsNumber, Twice, Before, Wrapped, Filled, Hooked, OnInstance)


def net(kind: type[Net], factor: float = 1.0) -> Net:
    torch.manual_seed(0)
    made = kind().eval()
    made.factor = factor
    return made


@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize("kind", ALL)
def test_another_result_of_the_call_is_a_difference(kind, values):
    a, b, again = (fx_debug(net(kind, factor), X, values=values) for factor in (1.0, 1.5, 1.5))
    assert [compare(a, b).verdict, compare(b, a).verdict, compare(b, again).verdict] == [
        "different",
        "different",
        "equal",
    ]


@pytest.mark.parametrize("kind", [Scaled, InCallImpl, Wrapped, Filled, Hooked, OnInstance])
def test_the_finding_says_that_it_was_changed_after_forward(kind):
    first = compare(fx_debug(net(Net), X), fx_debug(net(kind, 1.5), X)).first
    told = "the forwards return the same; a hook or a method of the class changes it afterwards in b"
    assert first is not None
    assert (first.path, first.because) == ("", told)


@pytest.mark.parametrize("kind", [Scaled, Wrapped, Hooked])
def test_the_same_computed_in_forward_is_equal(kind):
    a, b = fx_debug(net(InForward, 1.5), X), fx_debug(net(kind, 1.5), X)
    assert [compare(a, b).verdict, compare(b, a).verdict] == ["equal", "equal"]
    assert compare_models(net(InForward, 1.5), net(kind, 1.5), X).equal


def test_the_record_has_what_the_caller_passed_and_got(tmp_path):
    fx_debug(net(Scaled, 1.5), X, save=tmp_path)
    plain, loaded = fx_debug(net(Net), X).root, load(tmp_path).root
    assert plain.returned is None
    assert loaded.given is None
    assert loaded.returned is not None
    assert next(iter(loaded.returned)).stats != next(iter(loaded.outputs)).stats


def test_beside_a_debug_tree_the_result_of_the_call_is_looked_for(tmp_path):
    with model_addition_debugger_context(model := net(Scaled, 1.5), str(tmp_path)):
        model(X)
    found = compare(str(tmp_path), fx_debug(net(Scaled, 1.5), X))
    assert found.verdict == "could not compare"
    assert found.missing == (
        "the file of a does not have what the model returned, and what b returned is not among the values it has: "
        "a tensor 3×8",
    )
