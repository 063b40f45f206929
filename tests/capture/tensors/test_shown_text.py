"""Showing an argument has no effect on the run: its ``__repr__`` may draw numbers, count, print or fail."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.data.values import Group, Thing

DRAWS = {
    "Python": lambda: random.random(),
    "numpy": lambda: float(np.random.rand()),
    "torch": lambda: float(torch.rand(1)),
    "torch's seed": lambda: torch.manual_seed(1) and None,
}


class Draws:
    def __init__(self, draw: Callable[[], Any]) -> None:
        self.draw = draw

    def __repr__(self) -> str:
        self.draw()
        return "Draws()"

    def used(self) -> None:
        """Do nothing: the text of this method has that of its object in it."""


class ShowsMore(nn.Module):
    def __init__(self, thing: Draws) -> None:
        super().__init__()
        self.thing = thing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def extra_repr(self) -> str:
        return repr(self.thing)


class Holds:
    def __init__(self, thing: Any) -> None:
        self.thing = thing


@dataclasses.dataclass
class Field:
    thing: Any


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda thing: thing,
    "in a list": lambda thing: [thing],
    "in a set": lambda thing: {thing},
    "in a dataclass": Field,
    "in a partial": lambda thing: functools.partial(print, thing),
    "a bound method": lambda thing: thing.used,
    "in a module": ShowsMore,
    "a key": lambda thing: {thing: 1},
    "beside a tensor": lambda thing: Held(thing),
}


class Held:
    def __init__(self, thing: Any) -> None:
        self.thing, self.tensor = thing, torch.ones(2)

    def __repr__(self) -> str:
        return f"Held({self.thing!r})"


class AddsNoise(nn.Module):
    def forward(self, x: torch.Tensor, *things: Any) -> torch.Tensor:
        return x + torch.rand(2) + random.random() + np.random.rand()


def outcome(run: Callable[[], Any]) -> tuple[torch.Tensor, Any, Any, Any]:
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    run()
    return torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]  # type: ignore[index]


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("generator", DRAWS)
def test_a_repr_that_draws_numbers_changes_no_state(generator: str, container: str, graph: bool) -> None:
    model, x = AddsNoise(), torch.ones(2)
    passed = CONTAINERS[container](Draws(DRAWS[generator]))
    plain = outcome(lambda: model(x, passed))
    traced = outcome(lambda: fx_debug(model, (x, passed), graph=graph))
    assert torch.equal(plain[0], traced[0]) and plain[1:] == traced[1:]


COUNT = [0]


class Counts:
    total = 0

    def __init__(self) -> None:
        self.shown = 0
        self.log: list[int] = []
        self.memo: dict[str, int] = {}

    def __repr__(self) -> str:
        self.shown += 1
        self.log.append(self.shown)
        self.memo["shown"] = self.shown
        Counts.total += 1
        COUNT[0] += 1
        print("shown")
        return f"Counts({self.shown})"


class ShownAsItCounts(nn.Module):
    def forward(self, x: torch.Tensor, counts: Counts) -> torch.Tensor:
        return x * (counts.shown + len(counts.log) + len(counts.memo) + Counts.total + COUNT[0] + 1)


def test_a_repr_that_changes_its_object_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    counts, x = Counts(), torch.ones(2)
    trace = fx_debug(nn.Sequential(), x)
    model = ShownAsItCounts()
    trace = fx_debug(model, (x, counts))
    assert torch.equal(model(x, counts), x)
    assert (counts.shown, counts.log, counts.memo, Counts.total, COUNT) == (0, [], {}, 0, [0])
    assert capsys.readouterr().out == ""
    shown = trace.root.inputs.args[1]
    assert isinstance(shown, Thing | Group) and shown.text == "Counts(1)"


class TakesFromAnIterator:
    def __init__(self, numbers: Iterator[int]) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"next is {next(self.numbers)}"


class WritesAFile:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __repr__(self) -> str:
        with open(self.path, "w") as file:
            file.write("shown")
        return "written"


class CallsAModule:
    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __repr__(self) -> str:
        return f"gives {self.module(torch.ones(1, 2)).shape}"


def test_a_repr_that_cannot_be_undone_is_not_called(tmp_path: Path) -> None:
    things = (TakesFromAnIterator(iter(range(3))), WritesAFile(tmp_path / "file"))
    trace = fx_debug(AddsNoise(), (torch.ones(2), *things))
    assert next(things[0].numbers) == 0 and not (tmp_path / "file").exists()
    texts = [item.text for item in trace.root.inputs.args[1:] if isinstance(item, Thing)]
    assert texts == ["<TakesFromAnIterator object>", "<WritesAFile object>"]


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor, thing: CallsAModule) -> torch.Tensor:
        return x * 2


def test_a_repr_that_calls_a_module_is_no_call_of_the_run() -> None:
    model = Doubles()
    model.linear = nn.Linear(2, 2)
    trace = fx_debug(model, (torch.ones(2), CallsAModule(model.linear)))
    assert [call.path for call in trace.calls] == [""]
    assert trace.root.status == "verified"


class DrawsAsDict(dict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        torch.rand(1)
        return super().__iter__()

    def values(self) -> Any:
        random.random()
        return super().values()


class DrawsAsList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        torch.rand(1)
        return super().__iter__()

    def __len__(self) -> int:
        random.random()
        return super().__len__()


class DrawsAsTuple(tuple[Any, ...]):
    __iter__ = DrawsAsList.__iter__  # type: ignore[assignment]


class DrawsAsSet(set[Any]):
    def __iter__(self) -> Iterator[Any]:
        torch.rand(1)
        return super().__iter__()


class AnswersAnyName:
    __slots__ = ("missing",)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return torch.rand(1)


class DrawsAsNumber(int):
    def __repr__(self) -> str:
        return str(random.random())


class DrawsAsText(str):
    def __repr__(self) -> str:
        return str(torch.rand(1))


LOOKED_INTO: dict[str, Callable[[], Any]] = {
    "dict": lambda: DrawsAsDict(a=torch.ones(2)),
    "list": lambda: DrawsAsList([torch.ones(2)]),
    "tuple": lambda: DrawsAsTuple([torch.ones(2)]),
    "set": lambda: DrawsAsSet({1, 2}),
    "any name": AnswersAnyName,
    "number": lambda: DrawsAsNumber(3),
    "text": lambda: DrawsAsText("a"),
}


@pytest.mark.parametrize("values", ["stats", "tensors", "repr"])
@pytest.mark.parametrize("kind", LOOKED_INTO)
def test_looking_into_an_argument_calls_none_of_its_methods(kind: str, values: str, tmp_path: Path) -> None:
    model, x, passed = nn.Sequential(AddsNoise()), torch.ones(2), LOOKED_INTO[kind]()
    model.forward = lambda x, thing: model[0](x, thing, [thing])  # type: ignore[method-assign]
    plain = outcome(lambda: model(x, passed))
    traced = outcome(lambda: fx_debug(model, (x, passed), save=tmp_path / "run", values=values))
    assert torch.equal(plain[0], traced[0]) and plain[1:] == traced[1:]


class Told(ValueError):
    told = 0

    def __str__(self) -> str:
        Told.told += 1
        return f"told {Told.told}, {torch.rand(1).shape} {random.random() < 2}"


class Raises(nn.Module):
    def forward(self, x: torch.Tensor, error: Exception) -> torch.Tensor:
        raise error


class CatchesIt(AddsNoise):
    def __init__(self) -> None:
        super().__init__()
        self.child = Raises()

    def forward(self, x: torch.Tensor, *things: Any) -> torch.Tensor:
        try:
            x = self.child(x, *things)
        except ValueError as error:
            x = x * len(error.args)
        return super().forward(x)


@pytest.mark.parametrize("error", [Told("no"), ValueError(Draws(DRAWS["torch"])), Told(torch.ones(2), Counts())])
def test_the_text_of_an_exception_has_no_effect_on_the_run(error: Exception) -> None:
    model, x = CatchesIt(), torch.ones(2)
    Told.told = Counts.total = 0
    plain = outcome(lambda: model(x, error))
    traced = outcome(lambda: fx_debug(model, (x, error)))
    assert torch.equal(plain[0], traced[0]) and plain[1:] == traced[1:]
    assert (Told.told, Counts.total) == (0, 0)


def test_an_exception_that_shows_a_tensor_is_no_operation_of_the_run() -> None:
    trace = fx_debug(CatchesIt(), (torch.ones(2), ValueError("no", torch.ones(2))))
    assert [node.op for node in trace.ops(path="")] == ["mul", "rand", "add", "add", "add"]
    failed = trace.find("child")[0].error
    assert failed is not None and failed.message == "('no', tensor([1., 1.]))"
