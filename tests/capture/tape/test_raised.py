"""Exceptions that a body catches: the graph has what ran besides, and refuses where something else is raised."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError
from support.reasons import guards_of
from support.same import difference
from support.watched import Layer, watched


class Refuses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no kernel for this")


class RefusesFew(Layer):
    """Computes, also in children of its own, and raises in the end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.l(x).softmax(-1)
        if y.shape[0] < 4:
            raise ValueError("too few", y.shape[0])
        return y * 2


class RefusesNan(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        if not torch.isfinite(y).all():
            raise FloatingPointError("not finite")
        return y


class FallsBack(Layer):
    def setup(self) -> None:
        self.fast: nn.Module = Refuses()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.fast(x)  # type: ignore[no-any-return]
        except (NotImplementedError, ValueError, FloatingPointError, RuntimeError):
            return self.l(x)


class FallsBackLater(FallsBack):
    def setup(self) -> None:
        self.fast = RefusesFew()


class FallsBackForValues(FallsBack):
    """Its values decide: ``x / 0`` is no number."""

    def setup(self) -> None:
        self.fast = RefusesNan()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x / x.min().clamp(max=0)) if x.min() > 0 else super().forward(x)


class TakesOtherArguments(Layer):
    """Tries the signature that some libraries' modules have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.l(x, mask=None)  # type: ignore[no-any-return]
        except TypeError:
            return self.l(x) + 1  # type: ignore[no-any-return]


class ForAll(Layer):
    def setup(self) -> None:
        self.ways = nn.ModuleList([Refuses(), RefusesFew(), Refuses(), nn.Tanh()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for way in self.ways:
            with contextlib.suppress(NotImplementedError, ValueError):
                found.append(way(x))
        return torch.cat(found)


class Translates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Refuses()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.relu()
        try:
            return self.inner(x)  # type: ignore[no-any-return]
        except NotImplementedError as error:
            raise ValueError("in the inner one") from error


class TwoDeep(FallsBack):
    def setup(self) -> None:
        self.fast = Translates()


class CatchesInside(nn.Module):
    """Catches an exception, goes on, and raises another."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = TwoDeep()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        raise ValueError(str(y.dim()))


class ThreeDeep(FallsBack):
    def setup(self) -> None:
        self.fast = CatchesInside()


class OperationRaises(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            y = x.view(-1, 5, 7)
        except RuntimeError:
            y = self.l(x).view(-1, 2, 4)
        try:
            return torch.stack([y, x])
        except RuntimeError as error:
            return y + len(error.args)


class AnswersWithArguments(Layer):
    """Uses what the exception says."""

    def setup(self) -> None:
        self.fast = RefusesFew()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            y: torch.Tensor = self.fast(x)
        except ValueError as error:
            y = self.l(x) * error.args[1]
        else:
            y = y - 1
        finally:
            x = x * 2
        return x + y


class InEvaluation(FallsBack):
    """A dropout that draws nothing."""

    def setup(self) -> None:
        self.fast = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), Refuses())


VERIFIED = (
    FallsBack, FallsBackLater, FallsBackForValues, TakesOtherArguments, ForAll, TwoDeep, ThreeDeep, OperationRaises,
    AnswersWithArguments, InEvaluation,
)  # fmt: skip


@pytest.mark.parametrize("kind", VERIFIED, ids=lambda kind: kind.__name__)
def test_a_body_that_catches_an_exception_is_verified(kind: type[nn.Module]) -> None:
    found = watched(lambda: (kind().eval(), torch.rand(3, 8) + 1))
    assert found.root.status == "verified", found.root.reason
    assert [call.reason for call in found.trace.calls if call.status != "verified" and call.error is None] == []


@pytest.mark.parametrize("kind", VERIFIED, ids=lambda kind: kind.__name__)
def test_its_graph_is_right_or_refuses_where_something_else_is_raised(kind: type[nn.Module]) -> None:
    model, x = kind().eval(), torch.rand(3, 8) + 1
    with torch.no_grad():
        graph = fx_debug(model, x).root.fx
        assert difference(graph(x), model(x)) is None
        for other in (torch.rand(2, 8) + 1, torch.rand(6, 8) + 1, torch.rand(3, 8) - 2, torch.zeros(3, 8)):
            with contextlib.suppress(UsageError):
                assert difference(graph(other), model(other)) is None


def test_the_exception_is_an_assumption() -> None:
    trace = fx_debug(FallsBackLater().eval(), torch.randn(3, 8))
    line = "return self.fast(x)  # type: ignore[no-any-return]"
    assert guards_of(trace.root) == [("the exception of RefusesFew", "ValueError: ('too few', 3)", line)]
    with pytest.raises(UsageError):
        trace.root.fx(torch.randn(5, 8))


class Writes(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        raise ValueError("late")


class Draws(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.rand(2)
        raise ValueError("late")


LATE: dict[str, Any] = {
    "a written argument": Writes,
    "a random number": Draws,
    "a dropout": lambda: nn.Sequential(nn.Dropout(0.5), Refuses()).train(),
    "running statistics": lambda: nn.Sequential(nn.BatchNorm1d(8), Refuses()).train(),
    "a written argument inside": lambda: nn.Sequential(nn.ReLU(inplace=True), Refuses()),
}


@pytest.mark.parametrize("what", LATE)
def test_where_something_is_left_of_the_call_that_raised_it_is_recorded(what: str) -> None:
    def make() -> Any:
        model = FallsBack().eval()
        model.fast = LATE[what]()
        return model, torch.randn(3, 8)

    found = watched(make)
    assert found.root.status == "recorded"
    assert "after it may have written to a tensor or drawn random numbers" in found.root.reason


class Counts(Refuses):
    count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return super().forward(x)


def test_an_attribute_that_the_call_set_before_it_raised_is_no_part_of_the_graph() -> None:
    model = FallsBack().eval()
    model.fast = Counts()
    call = fx_debug(model, torch.randn(3, 8)).root
    assert call.status == "verified"
    with pytest.raises(UsageError, match="changes attributes or other objects"):
        call.fx(torch.randn(3, 8))
    assert model.fast.count == 1


class Carries(Exception):
    def __init__(self, found: torch.Tensor) -> None:
        super().__init__("found")
        self.found = found


class Throws(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise Carries(self.l(x))


class Unwinds(Layer):
    """Returns by an exception, with a result that the graph does not have."""

    def setup(self) -> None:
        self.inner = Throws()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.inner(x)  # type: ignore[no-any-return]
        except Carries as carries:
            return carries.found + 1


def test_a_result_that_leaves_in_an_exception_makes_it_recorded() -> None:
    found = watched(lambda: (Unwinds().eval(), torch.randn(3, 8)))
    assert found.root.status == "recorded"
    assert found.root.reason.startswith("add takes a tensor that was made inside Throws and not returned by it")


def test_a_plain_copy_of_the_graph_computes_the_same() -> None:
    model, x = ForAll().eval(), torch.randn(3, 8)
    with torch.no_grad():
        assert torch.equal(copy.copy(fx_debug(model, x).root.fx)(x), model(x))
