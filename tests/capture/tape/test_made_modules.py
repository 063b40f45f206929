"""Modules that a body makes anew in each run: with closures, with modules that last, with options."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from fxdebug import UsageError, fx_debug
from support.watched import Layer, watched


class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"


class Shifted(nn.Module):
    """Wraps a module of its maker's, as solvers wrap what they integrate."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, *, side: Side = Side.LEFT) -> torch.Tensor:
        return self.inner(x - 1 if side is Side.LEFT else x + 1)  # type: ignore[no-any-return]


class Applies(nn.Module):
    """Holds a function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._function(x)


class WrapsAModule(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wrapped = Shifted(self.l)
        return wrapped(x) * wrapped(x, side=Side.RIGHT)  # type: ignore[no-any-return]


class WrapsAWrapper(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Shifted(Shifted(self.l))(x)  # type: ignore[no-any-return]


class HoldsAClosure(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 3.0
        return Applies(lambda y: self.l(y) * scale)(x)  # type: ignore[no-any-return]


class HoldsAPartial(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Applies(functools.partial(torch.clamp, min=0.0))(self.l(x))  # type: ignore[no-any-return]


class HoldsAMethod(Layer):
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(self.l(x))  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Applies(self.twice)(x)  # type: ignore[no-any-return]


MODELS = (WrapsAModule, WrapsAWrapper, HoldsAClosure, HoldsAPartial, HoldsAMethod)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_every_call_is_verified_and_call_fx_runs_for_another_batch(kind: type[nn.Module]) -> None:
    assert watched(lambda: (kind().eval(), torch.randn(3, 8))).not_verified() == {}
    model, x = kind().eval(), torch.randn(5, 8)
    with torch.no_grad():
        assert torch.equal(fx_debug(model, torch.randn(3, 8)).root.fx(x), model(x))


class ClosesOverATensor(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = x.mean()
        return Applies(lambda y: y - shift)(x)  # type: ignore[no-any-return]


class ClosesOverASize(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = int(x.shape[0])
        return Applies(lambda y: y * count)(x)  # type: ignore[no-any-return]


def test_a_closure_over_a_tensor_of_the_run_is_not_taken_for_another() -> None:
    assert watched(lambda: (ClosesOverATensor().eval(), torch.randn(3, 8))).root.status == "recorded"


def test_a_closure_over_another_number_is_refused() -> None:
    model = ClosesOverASize().eval()
    with torch.no_grad():
        trace = fx_debug(model, torch.randn(3, 8))
        if trace.root.status == "verified":
            with pytest.raises(UsageError):
                trace.root.fx(torch.randn(5, 8))


def test_a_member_of_an_enum_is_a_constant() -> None:
    with torch.no_grad():
        trace = fx_debug(WrapsAModule().eval(), torch.randn(3, 8))
        made = trace.find(type="Shifted")[1]
        assert torch.equal(made.fx(torch.ones(2, 8), side=Side.RIGHT), made.fx(torch.ones(2, 8), side=Side.RIGHT))
        with pytest.raises(UsageError, match="it holds for the argument <Side"):
            made.fx(torch.ones(2, 8), side=Side.LEFT)
