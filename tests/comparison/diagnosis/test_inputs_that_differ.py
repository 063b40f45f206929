"""Inputs of two runs that differ: written by the other run, or from one position on."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.data.values import Keeping


class Forecast(nn.Module):
    """The next value of a series: by what was, by what is, or by what comes."""

    def __init__(self, sees: str) -> None:
        super().__init__()
        self.sees, both = sees, sees == "what comes"
        self.inner = nn.GRU(3, 4, batch_first=True, bidirectional=both)
        self.out = nn.Linear(8 if both else 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.sees == "what was":
            x = F.pad(x[:, :-1], (0, 0, 1, 0))
        return self.out(self.inner(x)[0])


@pytest.mark.parametrize(
    ("sees", "told"),
    [
        ("what was", "getitem; what is returned differs from position 7 of 9 on"),
        ("what is", "gru in inner; what is returned differs from position 6 of 9 on"),
        (
            "what comes",
            "gru in inner; what is returned differs from position 0 of 9 on, before it: inner (GRU) sees what "
            "comes later",
        ),
    ],
)
def test_where_inputs_differ_and_from_where_on_results_do_is_told(sees: str, told: str) -> None:
    model, x = Forecast(sees).eval(), torch.randn(2, 9, 3)
    changed = x.clone()
    changed[:, 6:, 1] += 1
    runs = [fxdebug.fx_debug(model, each, values="tensors") for each in (x, changed)]
    (row, *_) = fxdebug.compare(*runs).findings
    said = re.sub(r" \([\w.]+:\d+\)", "", row.because)
    begins = "the runs were given different inputs: args[0] from position 6 of 9 on, at 1 of dimension 2, first read by"
    assert said == f"{begins} {told}"


class Writes(nn.Module):
    def __init__(self, part: bool) -> None:
        super().__init__()
        self.part, self.layer = part, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.part:
            x[:, 0] = 2.0
        else:
            x.sub_(x.mean())
        return self.layer(x)


@pytest.mark.parametrize(("part", "op"), [(False, "sub"), (True, "setitem")])
@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_an_input_that_the_first_run_wrote_into_is_told_with_the_operation(
    part: bool, op: str, values: Keeping
) -> None:
    model, x = Writes(part), torch.arange(12.0).reshape(4, 3)
    runs = [fxdebug.fx_debug(model, x, values=values) for _ in range(2)]
    (row, *_) = fxdebug.compare(*runs).findings
    assert re.sub(r":\d+\)", ")", row.because) == (
        f"the runs were given different inputs: args[0], into which the run of a writes in place ({op}, "
        "test_inputs_that_differ.py): the other was given what it left"
    )


def test_inputs_of_ones_own_are_not_told_as_written() -> None:
    model = Writes(False)
    runs = [fxdebug.fx_debug(model, torch.randn(4, 3) * each, values="tensors") for each in (1, 5)]
    (row, *_) = fxdebug.compare(*runs).findings
    assert row.because == "the runs were given different inputs: args[0]"


class Steps(nn.Module):
    """A recurrent cell, called once for each step of a sequence by the one or the other caller."""

    def __init__(self, forgets: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head, self.forgets = nn.GRUCell(3, 4), nn.Linear(4, 2), forgets

    def forward(self, x: Tensor) -> Tensor:
        state, made = None, []
        for at in range(x.shape[1]):
            if self.forgets == "always" or (self.forgets == "by zeros" and at == 2):
                state = None if self.forgets == "always" else x.new_zeros(len(x), 4)
            state = self.cell(x[:, at], state)
            made.append(self.head(state))
        return torch.stack(made, 1)


@pytest.mark.parametrize(("forgets", "call", "before"), [("always", 1, 0), ("by zeros", 2, 1)])
def test_a_state_that_is_not_passed_on_is_told_once_with_the_call(forgets: str, call: int, before: int) -> None:
    x = torch.randn(2, 4, 3)
    runs = [fxdebug.fx_debug(Steps(how).eval(), x, values="tensors") for how in ("never", forgets)]
    (row,) = fxdebug.compare(*runs).findings
    assert row.because == (
        f"in b call {call} of cell begins with zeros, in a it goes on from what call {before} left: "
        "the state is not passed on"
    )
