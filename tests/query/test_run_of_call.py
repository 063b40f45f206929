"""A call of a run as a run of its own, and the steps of loops in it."""

from __future__ import annotations

import torch
from torch import nn

import fxdebug
from fxdebug.data.calls import Note
from fxdebug.data.trace import replaced
from fxdebug.query.loop_steps import loop_steps
from fxdebug.query.run_of_call import run_of_call


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.act(x) + 1)


def test_calls_inside_a_call_are_numbered_from_nought_in_it() -> None:
    trace = fxdebug.fx_debug(nn.Sequential(Twice(), Twice()), torch.ones(2))
    inside = run_of_call(trace.find("1")[0])
    assert [call.id for call in inside.calls] == ["#0", "act#0", "act#1"]


def test_notes_of_calls_inside_go_along_and_those_of_other_calls_do_not() -> None:
    trace = fxdebug.fx_debug(nn.Sequential(Twice(), Twice()), torch.ones(2))
    first, second = trace.find("0")[0], trace.find("1")[0]
    trace = replaced(trace, notes=(Note("of the first", call=first.index), Note("of the second", call=second.index)))
    inside = run_of_call(trace.find("1")[0])
    assert [(note.what, note.call) for note in inside.notes] == [("of the second", 0)]


class Reader(nn.Module):
    """Reads with a cache: a container of tensors that goes from one call to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor] | None = None) -> tuple[torch.Tensor, list]:
        y = self.linear(x)
        return y, [*(cache or []), y]


class Writer(nn.Module):
    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cache: list[torch.Tensor] | None = None
        for at in range(3):
            y, cache = self.reader(x[:, : 3 if at == 0 else 1], cache=cache)
        return y


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Twice()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.block(x))

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        self(x)
        return self(x)


def test_repeated_calls_with_a_cache_are_steps_that_read_the_prompt_and_then_decode() -> None:
    trace = fxdebug.fx_debug(Writer(Reader()), torch.ones(1, 3, 4))
    assert [str(step) for step in loop_steps(trace).values()] == [
        "step 0 · prefill",
        "step 1 · decode",
        "step 2 · decode",
    ]


def test_repeated_calls_without_a_cache_are_no_steps() -> None:
    assert loop_steps(fxdebug.fx_debug(Plain(), torch.ones(2))) == {}


def test_forwards_inside_another_method_of_the_model_are_steps() -> None:
    trace = fxdebug.fx_debug(Plain(), torch.ones(2), method="twice")
    assert [(trace.calls[index].id, str(step)) for index, step in loop_steps(trace).items()] == [
        ("#1", "step 0"),
        ("#2", "step 1"),
    ]
