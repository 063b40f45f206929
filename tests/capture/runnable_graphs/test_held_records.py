"""A program keeps traces, calls and reports wherever it likes: none of them is state of the model."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug

X = torch.arange(8.0).view(2, 4) / 8
kept: Any = None
c: Any = None


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, -1) * 2


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = Inner()
        self.seen: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(x) + 1


class ReadsGlobal(Outer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(x) + (kept is None) + 1


class ReadsInClassBody(Outer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        class Local:
            shift = 1 + (kept is None)

        return sum([self.c(x) for _ in range(1)], 0) + Local.shift


@dataclass(frozen=True)
class Kept:
    one: Any


class Pair(NamedTuple):
    one: Any
    other: Any


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda one: one,
    "a list": lambda one: [one],
    "a tuple": lambda one: (one, 1),
    "a dict": lambda one: {"one": one},
    "a frozen dataclass": Kept,
    "a named tuple": lambda one: Pair(one, 2),
    "a read-only mapping": lambda one: types.MappingProxyType({"one": one}),
}


def things() -> dict[str, Any]:
    trace = fx_debug(Outer(), X)
    return {
        "a trace": trace,
        "a call": trace.find("c")[0],
        "a graph": trace.graph,
        "a report": fxdebug.check(trace),
        "a comparison": fxdebug.compare(trace, fx_debug(Outer(), X)),
    }


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", [Outer, ReadsGlobal, ReadsInClassBody])
def test_graphs_run_while_the_program_keeps_records_of_a_run(
    kind: type[Outer], holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = kind()
    for thing in things().values():
        held = HOLDERS[holder](thing)
        monkeypatch.setitem(globals(), "kept", held)
        monkeypatch.setitem(globals(), "c", held)
        model.seen = held
        trace = fx_debug(model, X)
        monkeypatch.setitem(globals(), "c", HOLDERS[holder](trace.find("c")[0]))
        assert [call.status for call in trace.calls] == ["verified", "verified"]
        assert torch.equal(trace.root.fx(X), model(X))
        assert torch.equal(trace.calls[1].fx(X), model.c(X))


# Constants of modules in C -----------------------------------------------------------------------

OUTWARD = "ssl"  # a module of Python with objects that reach outside the process


class Choice(enum.Enum):
    ONE = "one"


def of_ssl(name: str, *bases: type) -> Any:
    return type(name, bases, {"__module__": OUTWARD})


def constants() -> dict[str, Any]:
    import signal
    import socket
    import ssl

    return {
        "enum": ssl.TLSVersion.TLSv1_2,
        "flags": ssl.Options.OP_NO_SSLv2 | ssl.Options.OP_NO_SSLv3,
        "signal": signal.SIGINT,
        "family": socket.AF_INET,
        "of the program": Choice.ONE,
        "number": of_ssl("Number", int)(3),
        "text": of_ssl("Text", str)("a"),
        "named tuple": ssl.get_default_verify_paths(),
        "class": ssl.SSLContext,
    }


constant: Any = None


def reads_constant() -> nn.Module:
    """A model of a class of its own: the graph of another of its class is proven already."""

    class ReadsConstant(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + (constant is not None)

    return ReadsConstant(4, 4)


@pytest.mark.parametrize("holder", HOLDERS)
def test_constants_of_python_cost_no_verification(holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, one in constants().items():
        monkeypatch.setitem(globals(), "constant", HOLDERS[holder](one))
        root = fx_debug(reads_constant(), X).root
        assert (name, root.status, root.reason) == (name, "verified", "")


def test_an_open_context_in_a_tuple_still_costs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import ssl

    monkeypatch.setitem(globals(), "constant", (ssl.create_default_context(),))
    root = fx_debug(reads_constant(), X).root
    assert (root.status, "SSLContext in a tuple" in root.reason) == ("recorded", True)
