"""Numbers, texts and flags that a body sets around a call: its graph sets them, too, and leaves none behind."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import Trace, fx_debug
from fxdebug.errors import UsageError
from support.other_inputs import BATCH
from support.trust import trust

X, OTHER = torch.arange(8.0).view(2, 4) / 8, torch.arange(12.0).view(3, 4) / 4


class Lazily:
    """A setting as libraries have it: a class with a state, which class methods and a block set."""

    _state: Any = None

    @classmethod
    def on(cls) -> bool:
        return cls._state is None or bool(cls._state)

    @classmethod
    def set(cls, state: Any) -> None:
        cls._state = state

    def __init__(self, state: Any = True) -> None:
        self.state = state

    def __enter__(self) -> None:
        self.before = self._state
        self.set(self.state)

    def __exit__(self, *error: object) -> None:
        self.set(self.before)


class Inner(nn.Module):
    mode, scale, halves = "plain", 1.0, False

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        x = x.tanh() if Lazily.on() else x.sin()
        x = x.relu() if self.mode == "rectified" else x
        x = x * self.scale
        return x / 2 if self.halves else x


@contextlib.contextmanager
def having(owner: Any, **attributes: Any) -> Iterator[None]:
    before = {name: owner.__dict__[name] for name in attributes if name in owner.__dict__}
    for name, content in attributes.items():
        setattr(owner, name, content)
    try:
        yield
    finally:
        for name in attributes:
            setattr(owner, name, before[name]) if name in before else delattr(owner, name)


class Net(nn.Module):
    """Calls its child three times: inside a block, in another block or none, and outside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.drop = nn.Dropout(0.5)

    def outer(self) -> Any:
        return contextlib.nullcontext()

    def block(self) -> Any:
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.outer():
            with self.block():
                y = self.inner(x)
            z = self.inner(y)
        return self.inner(z) + x


class SetsALibrarysSwitch(Net):
    def block(self) -> Any:
        return Lazily(False)


class SetsOneInsideAnother(Net):
    def outer(self) -> Any:
        return having(self.inner, scale=3.0)

    def block(self) -> Any:
        return Lazily(False)


class SetsAFlagOfTheChild(Net):
    def block(self) -> Any:
        return having(self.inner, halves=True)


class SetsATextOfTheChild(Net):
    def block(self) -> Any:
        return having(self.inner, mode="rectified")


class SetsAnAttributeOfTheClass(Net):
    def block(self) -> Any:
        return having(Inner, scale=2.0, halves=True)


class SetsSomethingDeepInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = SetsAFlagOfTheChild()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with having(self.net.inner, scale=0.5), Lazily(0):
            x = self.net(x)
        return self.net(x)


class TrainsForOneCall(Net):
    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        self.drop.train()
        yield
        self.drop.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.block():
            x = self.drop(x)
        return self.drop(self.inner(x))


KINDS: list[Any] = [
    SetsALibrarysSwitch, SetsOneInsideAnother, SetsAFlagOfTheChild, SetsATextOfTheChild, SetsAnAttributeOfTheClass,
    SetsSomethingDeepInside, TrainsForOneCall,
]  # fmt: skip


def traced(model: nn.Module, x: torch.Tensor = X) -> Trace:
    torch.manual_seed(1)
    with torch.no_grad():
        return fx_debug(model.eval(), x, graph=True)


def seeded(function: Any, *args: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    with torch.no_grad():
        return function(*args)  # type: ignore[no-any-return]


def states(model: nn.Module) -> Any:
    of_modules = [{k: v for k, v in inner.__dict__.items() if k[0] != "_"} for inner in model.modules()]
    return Lazily._state, Inner.scale, Inner.halves, Inner.mode, of_modules


@pytest.mark.parametrize("kind", KINDS)
def test_every_graph_runs_for_other_inputs_with_what_the_body_sets_around_its_calls(kind: Any) -> None:
    model = kind()
    before = states(model.eval())
    trace = traced(model)
    assert {call.status for call in trace.calls} == {"verified"}, [call.reason for call in trace.calls]
    for x in (X, OTHER):
        assert torch.equal(seeded(trace.root.fx, x), seeded(model, x))
        assert torch.equal(seeded(copy.copy(trace.root.fx), x), seeded(model, x))
    assert states(model) == before


@pytest.mark.parametrize("kind", KINDS[:-1])  # random numbers of a call alone are others than in its place in the run
def test_the_graph_of_a_call_inside_runs_as_its_callers_had_set_it(kind: Any) -> None:
    found = trust(kind.__name__, lambda: (kind().eval(), (X,)), other_inputs=True, own=True)
    assert found is not None and found.failed is found.output is None
    assert (found.verified, found.wrong, found.not_audited) == (found.calls, [], [])
    batch = next(each for each in found.others if each.change == BATCH)
    for asked in (found.own, batch):
        assert asked is not None and asked.right
        assert [*asked.wrong, *asked.refused, *asked.needless, *asked.objects, *asked.failed] == []


class Chooses(nn.Module):
    """What it sets is in no trait of its class and on no tape of its own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.inner, self.number = Inner(), number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with having(self.inner, scale=float(self.number)):
            return self.inner(x)


def test_two_modules_of_a_class_that_set_other_numbers_have_graphs_of_their_own() -> None:
    model = nn.Sequential(Chooses(2), Chooses(3))
    trace = traced(model)
    assert {call.status for call in trace.calls} == {"verified"}
    for path, x in (("0", OTHER), ("1", OTHER), ("", OTHER)):
        module = model.get_submodule(path)
        assert torch.equal(seeded(trace[path].fx, x), seeded(module, x))


class SetsByTheBatch(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with having(self.inner, halves=x.shape[0] > 2):
            return self.inner(x)


class Word(str):
    """A text with a class of its own, which may hold anything."""


class SetsAnObject(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with having(self.inner, mode=Word("rectified")):
            return self.inner(x)


@pytest.mark.parametrize("kind", [SetsByTheBatch, SetsAnObject])
def test_a_graph_still_refuses_where_it_would_set_something_else(kind: Any) -> None:
    model = kind()
    trace = traced(model)
    with pytest.raises(UsageError):
        seeded(trace.root.fx, OTHER)


class Raises(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with having(self.inner, halves=True):
            return self.inner(x)


def test_nothing_stays_set_when_a_call_in_the_graph_raises() -> None:
    model = Raises()
    trace = traced(model)
    before = states(model)
    with pytest.raises((RuntimeError, UsageError)):
        trace.root.fx(torch.ones(2, 5))
    assert states(model) == before
    with torch.no_grad(), pytest.raises(RuntimeError):
        copy.copy(trace.root.fx)(torch.ones(2, 5))
