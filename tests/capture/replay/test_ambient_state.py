"""Settings that a body changes around an operation or a call: no graph has them, so none is run as if it had."""

from __future__ import annotations

import contextvars
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fxdebug
from fxdebug import Trace, fx_debug


def traced(model: nn.Module) -> Trace:
    with torch.no_grad():
        return fx_debug(model.eval(), torch.randn(3, 8))


def refusal(trace: Trace, rows: int) -> str:
    with torch.no_grad(), pytest.raises(fxdebug.UsageError) as caught:
        trace.root.fx(torch.randn(rows, 8))
    return str(caught.value).partition("does not hold here: ")[2]


TEMPERATURE = contextvars.ContextVar("temperature", default=1.0)


class Layer(nn.Module):
    """Computes something else with each of the changes that the tests make."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.linear(x)) / math.sqrt(x.shape[-1])
        if os.environ.get("HALVED") == "1":
            x = x / 2
        return x * TEMPERATURE.get()


@contextmanager
def warmer() -> Iterator[None]:
    token = TEMPERATURE.set(2.0)
    try:
        yield
    finally:
        TEMPERATURE.reset(token)


class Doubles(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is F.gelu else result


def twice(x: torch.Tensor, **options: Any) -> torch.Tensor:
    return x * 2


def without_bias(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, self.weight)


OBJECTS = "its Python changes attributes or other objects around a call, and a graph does not"
AROUND: dict[str, tuple[Callable[[], Any], str]] = {
    "context variable": (
        warmer,
        "its Python sets a context variable around a call (temperature), and a graph does not",
    ),
    "environment": (
        lambda: mock.patch.dict(os.environ, {"HALVED": "1"}),
        "its Python changes the environment around a call, and a graph does not",
    ),
    "function mode": (
        Doubles,
        "its Python calls a module under a mode of its own (Doubles), and a graph does not",
    ),
    "function of torch": (lambda: mock.patch.object(F, "gelu", twice), OBJECTS),
    "function of torch by its name": (lambda: mock.patch("torch.nn.functional.gelu", twice), OBJECTS),
    "function of Python": (lambda: mock.patch.object(math, "sqrt", lambda x: 1.0), OBJECTS),
    "method of a class of torch": (
        lambda: mock.patch.object(nn.Linear, "forward", without_bias),
        "Linear ran another forward than it has",
    ),
    "setting in Python": (
        nn.utils.parametrize.cached,
        "its Python changes a setting of torch's around a call, and a graph does not",
    ),
}


class Around(nn.Module):
    def __init__(self, block: Callable[[], Any]) -> None:
        super().__init__()
        self.block = block
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.block():
            y = self.layer(x)
        return self.layer(y) + 1


@pytest.mark.parametrize("what", AROUND)
def test_a_graph_refuses_to_run_where_its_body_changes_something_around_a_call(what: str) -> None:
    block, reason = AROUND[what]
    trace = traced(Around(block))
    assert trace.root.status == "verified", trace.root.reason
    assert [refusal(trace, rows) for rows in (3, 5)] == [reason] * 2


class PatchesByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gelu, F.gelu = F.gelu, twice
        y = self.layer(x)
        leaf = x.grad is None  # a placeholder does not have it: here the trace of this body ends
        F.gelu = gelu
        return y + leaf


def test_a_patched_function_of_torch_is_restored_when_the_trace_ends_in_the_middle() -> None:
    gelu = F.gelu
    try:
        assert traced(PatchesByHand()).root.status == "recorded"
        assert F.gelu is gelu
    finally:
        F.gelu = gelu


class Rounds(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result.round() if function is torch.ops.aten.mul.Tensor else result


class UnderAMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with Rounds():
            return self.layer(x * 1.5)


def test_operations_and_calls_under_a_dispatch_mode_of_the_body_are_recorded() -> None:
    trace = traced(UnderAMode())
    assert [(call.path, call.status, call.reason.partition(" (test_")[0]) for call in trace.calls] == [
        ("", "recorded", "it computes under a mode of its own (Rounds)"),
        ("layer", "recorded", "it runs under a mode of its caller's (Rounds)"),
        ("layer.linear", "recorded", "it runs under a mode of its caller's (Rounds)"),
    ]


def test_a_dispatch_mode_around_the_whole_run_changes_no_status() -> None:
    with Rounds():
        trace = traced(Around(warmer))
    assert {call.status for call in trace.find("layer.linear")} == {"verified"}


class PatchedFromAfar(nn.Module):
    """Patches a function of torch for a call, in a way that cannot be seen in the code of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        name = "".join(("ge", "lu"))
        places = vars(nn.functional)
        kept, places[name] = places[name], twice
        try:
            return self.act(x)
        finally:
            places[name] = kept


def test_a_graph_refuses_to_run_where_a_call_in_it_computes_something_else_for_a_hidden_reason() -> None:
    trace = traced(PatchedFromAfar())
    assert trace.root.status == "verified", trace.root.reason
    for rows in (3, 5):
        assert refusal(trace, rows).startswith("GELU in it does something else than alone at test_ambient_state.py:")


def test_the_graph_of_one_body_is_not_reused_for_a_body_that_changes_something_around_its_call() -> None:
    assert traced(Around(nullcontext)).root.fx(torch.randn(5, 8)).shape == (5, 8)
    assert refusal(traced(Around(warmer)), 3) == AROUND["context variable"][1]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("function mode", "it ran under a mode of its caller's (Doubles)"),
        ("method of a class of torch", "Linear ran another forward than it has"),
    ],
)
def test_a_graph_refuses_to_run_where_its_caller_changed_what_the_calls_in_it_compute(what: str, reason: str) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.middle = nn.Sequential(nn.Linear(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with AROUND[what][0]():
                return self.middle(x)

    call = traced(Outer()).find("middle")[0]
    assert call.status == "verified", call.reason
    with pytest.raises(fxdebug.UsageError, match=re.escape(reason)):
        call.fx(torch.randn(3, 8))
