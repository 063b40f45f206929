"""Methods of the program's objects run as often with a recording as without one: they may draw, count or print."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from support import sweep

ANSWERS: dict[str, Callable[..., Any]] = {
    "__repr__": lambda self: "x",
    "__str__": lambda self: "x",
    "__format__": lambda self, how: "x",
    "__eq__": lambda self, other: self is other,
    "__ne__": lambda self, other: self is not other,
    "__hash__": lambda self: id(self),
    "__len__": lambda self: 1,
    "__bool__": lambda self: True,
    "__iter__": lambda self: iter(()),
    "__contains__": lambda self, item: False,
    "__getitem__": lambda self, key: None,
    "__getattribute__": object.__getattribute__,
    "__class__": type,
    "__module__": lambda self: "somewhere",
    "__dataclass_fields__": lambda self: {},
    "__copy__": lambda self: self,
    "__deepcopy__": lambda self, memo: self,
    "__reduce_ex__": lambda self, protocol: (int, ()),
    "__call__": lambda self: None,
    "__del__": lambda self: None,
}
READ = ("__class__", "__module__", "__dataclass_fields__")  # without a call
BASES = (object, list, dict, set, tuple, str, int, float, ValueError)


def noticing(base: type, method: str) -> tuple[Any, Callable[[], int]]:
    """Return an object of a class that draws random numbers and counts in a method, and what returns the count."""

    def answer(self: Any, *args: Any) -> Any:
        made.asked += 1
        if method != "__del__":  # it may run during a later test
            random.random(), torch.rand(1)
        return ANSWERS[method](self, *args)

    namespace: dict[str, Any] = {method: property(answer) if method in READ else answer, "asked": 0}
    if method == "__eq__":
        namespace["__hash__"] = base.__hash__
    made: Any = type("Noticing", (base,), namespace)
    thing = made()
    if base in (object, ValueError):
        object.__setattr__(thing, "tensor", torch.ones(3))
    return thing, lambda: made.asked


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, given: Any) -> Any:
        return self.linear(x) + torch.rand(3), given


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor, given: Any) -> Any:
        return self.inner(x, given)


class Raises(Outer):
    def forward(self, x: torch.Tensor, given: Any) -> Any:
        self.inner(x, given)
        raise KeyError(given)


class Holds(Outer):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: torch.Tensor, given: Any) -> Any:
        return self.inner(x, None)


def ways(thing: Any) -> Iterator[tuple[nn.Module, Any]]:
    yield Outer(), thing
    yield Outer(), [thing, {"k": (thing,)}]
    if type(thing).__hash__ is not None:
        yield Outer(), {thing: torch.ones(2)}
    yield Raises(), thing
    yield Holds(thing), None


def all_asked(model: nn.Module, given: Any, values: str) -> None:
    try:
        trace = fx_debug(model, (torch.ones(2, 3), given), values=values)
    except KeyError:
        return
    assert trace.graph.number_of_nodes() and str(trace) and all(call.code for call in trace.calls)
    assert trace.root.status != "verified" or trace.root.fx is not None


@pytest.mark.parametrize(("method", "base"), sweep.spread(ANSWERS, BASES, rounds=2))
def test_a_method_of_an_argument_runs_as_often_as_without_a_recording(base: type, method: str) -> None:
    thing, asked = noticing(base, method)
    for values in ("stats", "tensors"):
        for model, given in ways(thing):
            torch.manual_seed(0), random.seed(0)
            before = asked()
            with contextlib.suppress(KeyError):
                model(torch.ones(2, 3), given)
            times, drawn, of_python = asked() - before, torch.get_rng_state(), random.getstate()
            torch.manual_seed(0), random.seed(0)
            before = asked()
            all_asked(model, given, values)
            assert asked() - before == times, (type(model).__name__, values)
            assert torch.equal(torch.get_rng_state(), drawn), (type(model).__name__, type(given), values)
            assert random.getstate() == of_python


class Named(enum.Enum):
    ONE = 1
    asked = enum.nonmember([])  # type: ignore[attr-defined, unused-ignore]

    def __repr__(self) -> str:
        self.asked.append("repr")
        return "one"

    def __hash__(self) -> int:
        self.asked.append("hash")
        return 1


def test_a_member_of_an_enum_with_methods_of_its_own_is_not_asked() -> None:
    assert fx_debug(Outer(), (torch.ones(2, 3), Named.ONE)).root.code
    assert Named.asked == []


def test_keys_and_numbers_of_the_program_s_classes_that_have_no_such_methods_are_verified() -> None:
    class Key:
        pass

    class Place(str):
        pass

    class Whole(int):
        pass

    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, given: Any) -> Any:
            return x * given[key] * given[Place("a")], given

    key = Key()
    given = {key: torch.ones(3), Place("a"): Whole(3), ("b", 1): 2}
    trace = fx_debug(Adds(), (torch.ones(2, 3), given))
    assert trace.root.status == "verified"
    assert torch.equal(trace.root.fx(torch.ones(2, 3), given)[0], torch.full((2, 3), 3.0))


class Slotted:
    __slots__ = ("part",)


class Asked(type):
    def __getattr__(cls, name: str) -> Any:
        raise ValueError("odd")


def refusing(kind: str) -> type:
    """A class that raises where something reads its objects' attributes, a slot, or what it has itself."""

    def refuse(self: Any) -> Any:
        raise ValueError("odd")

    if kind == "attributes":
        return dataclasses.dataclass(type("Refusing", (), {"__dict__": property(refuse)}))
    return type("Refusing", (Slotted,), {"part": property(refuse)}) if kind == "slot" else Asked("Refusing", (), {})


@pytest.mark.parametrize("kind", ["attributes", "slot", "class"])
def test_a_class_that_raises_where_it_is_looked_into_changes_no_run(kind: str, both_ways: None) -> None:
    class Gives(nn.Module):
        def forward(self, x: torch.Tensor, given: Any) -> Any:
            return x * 2, None if type(given) is list else type(given)()

    class Passes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gives = Gives()

        def forward(self, x: torch.Tensor, given: Any) -> torch.Tensor:
            y, made = self.gives(x, given)
            return self.gives(y, [made, {"made": made}])[0] if type(made) is type(given) else y

    thing = refusing(kind)()
    output = fx_debug(Passes(), (torch.ones(2, 3), thing)).output
    assert torch.equal(output, torch.full((2, 3), 4.0))
