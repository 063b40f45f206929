"""A child's call may compute around its ``forward``: its graph and copies of it compute that once."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug

X = torch.arange(8.0).view(2, 4) / 8


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Around(Inner):
    def __call__(self, x: torch.Tensor) -> Any:
        return super().__call__(x * 2) + 1


class AroundAnything(Inner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (x,) = args
        return super().__call__(x.sigmoid(), **kwargs)


class Below(Around):
    """The class of a parent has the ``__call__``."""


class Twice(Around):
    def __call__(self, x: torch.Tensor) -> Any:
        return super().__call__(x - 1)


def scaling(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def scaled(*args: Any) -> Any:
        return function(*args) * 3

    return scaled


class InCallImpl(Inner):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_impl(*(x * 3 for x in args), **kwargs)  # type: ignore[misc]


class Decorated(Inner):
    @scaling
    def __call__(this, x: torch.Tensor) -> Any:
        return nn.Module.__call__(this, x)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.tanh()


class ByHelper(Inner):
    def __call__(self, x: torch.Tensor) -> Any:
        return helper(super().__call__(x))


class CallsAnother(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def __call__(self, x: torch.Tensor) -> Any:
        return self.norm(super().__call__(x))


class NeverForward(Inner):
    def __call__(self, x: torch.Tensor) -> Any:
        return x + 5


class PassesOn(Inner):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, other: torch.Tensor, by: int = 1) -> Any:
        return x * by - other, x


class AnotherConstant(Scaled):
    def __call__(self, x: torch.Tensor, other: torch.Tensor, by: int = 1) -> Any:
        return super().__call__(x, other, by=by + 2)


class AnotherOrder(Scaled):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args[::-1], **kwargs)


class PartOfResult(Scaled):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)[::-1]


class NoKeywords(Scaled):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args)


class AnotherResult(Scaled):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        super().__call__(*args, **kwargs)
        return args[1], args[0]


class PassesAllOn(Scaled):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class ExchangesInputs:
    __module__ = "torch.nn.utils.exchanging"

    def __call__(self, module: nn.Module, inputs: Any) -> Any:
        return inputs[::-1]


class ExchangesOutputs(ExchangesInputs):
    def __call__(self, module: nn.Module, inputs: Any, output: Any = None) -> Any:
        return output[::-1]


class SetsKeyword(ExchangesInputs):
    def __call__(self, module: nn.Module, inputs: Any, named: Any = None) -> Any:
        return inputs, {"by": named["by"] * 5}


def with_exchanged_inputs() -> nn.Module:
    made = Scaled()
    made.register_forward_pre_hook(ExchangesInputs())
    return made


def with_exchanged_outputs() -> nn.Module:
    made = Scaled()
    made.register_forward_hook(ExchangesOutputs())
    return made


def with_another_keyword() -> nn.Module:
    made = Scaled()
    made.register_forward_pre_hook(SetsKeyword(), with_kwargs=True)
    return made


def with_a_watching_hook() -> nn.Module:
    made = Scaled()
    made.register_forward_pre_hook(type("Watches", (ExchangesInputs,), {"__call__": lambda *given: None})())
    return made


EXCHANGING: dict[str, Callable[[], nn.Module]] = {
    made.__name__: made
    for made in (
        AnotherConstant,
        AnotherOrder,
        PartOfResult,
        NoKeywords,
        AnotherResult,
        with_exchanged_inputs,
        with_exchanged_outputs,
        with_another_keyword,
    )
}


class DoublesOutput:
    __module__ = "torch.nn.utils.doubling"  # hooks of torch run when a body is traced

    def __call__(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 2


def with_hook() -> nn.Module:
    inner = Inner()
    inner.register_forward_hook(DoublesOutput())
    return inner


class Outer(nn.Module):
    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(x).relu() + self.child(x * 3)


COMPUTING: dict[str, Callable[[], nn.Module]] = {
    kind.__name__: kind
    for kind in (Around, AroundAnything, Below, Twice, InCallImpl, Decorated, ByHelper, CallsAnother)
} | {"with a hook": with_hook}
OTHERS: dict[str, Callable[[], nn.Module]] = {"NeverForward": NeverForward, "PassesOn": PassesOn, "usual": Inner}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", [*COMPUTING, *OTHERS])
def test_what_a_call_computes_around_forward_is_computed_once(kind: str, nested: bool) -> None:
    child = (COMPUTING | OTHERS)[kind]()
    model = Outer(nn.Sequential(child) if nested else child)
    call = fx_debug(model, X).calls[1 if nested else 0]
    expected = model.child(X) if nested else model(X)
    assert call.status == "verified", call.reason
    for graph in (call.fx, copy.copy(call.fx), copy.deepcopy(call.fx)):
        assert torch.equal(graph(X), expected)
    calls_forward = "_module.forward(" in call.fx.code
    assert calls_forward is (kind in COMPUTING), call.fx.code
    assert call.graph is not None and ("_module.forward(" in call.graph.code) is calls_forward


class GivesBoth(Outer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.child(x, x.cos(), by=2)
        return first - 3 * second


@pytest.mark.parametrize("kind", [*EXCHANGING, "PassesAllOn", "with_a_watching_hook"])
def test_what_is_exchanged_around_forward_is_exchanged_once(kind: str) -> None:
    model = GivesBoth(globals()[kind]())
    call = fx_debug(model, X).root
    assert call.status == "verified", call.reason
    for graph in (call.fx, copy.copy(call.fx), copy.deepcopy(call.fx)):
        assert torch.equal(graph(X), model(X))
    assert ("_module.forward(" in call.fx.code) is (kind in EXCHANGING), call.fx.code


def with_spectral_norm() -> nn.Module:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return Outer(nn.utils.spectral_norm(nn.Linear(4, 4)))


def test_a_hook_that_changes_the_module_runs_once_in_a_copy() -> None:
    model, reference = with_spectral_norm(), with_spectral_norm()  # in training, the hook takes a step of an iteration
    plain = copy.copy(fx_debug(model, X).root.fx)
    reference(X)
    for _ in range(2):
        assert torch.equal(plain(X), reference(X))
