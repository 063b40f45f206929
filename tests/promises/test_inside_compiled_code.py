"""A recording that starts inside code which ``torch.compile`` compiles is silent, and leaves that code compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import compare_models, fx_debug

X = torch.arange(4.0).view(2, 2)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Recorded(nn.Module):
    """Does something else on the way."""

    def __init__(self, otherwise: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.watched = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.otherwise = otherwise

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * 2
        self.otherwise(self.watched, y)
        return self.linear(y) + 1


WAYS: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "fx_debug": lambda model, x: fx_debug(model, x),
    "a tree": lambda model, x: fx_debug(model, x, graph=False),
    "with its graphs": lambda model, x: fx_debug(model, x).root.status,
    "a method": lambda model, x: fx_debug(model.forward, x),
    "compare_models": lambda model, x: compare_models(model, model, x),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_recording_inside_a_compiled_function_is_silent(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(len(graph.graph.nodes))
        return graph.forward

    model = Recorded(WAYS[way])
    with warnings.catch_warnings(), torch.no_grad():  # with gradients, dynamo warns on its own account
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Guards may run slower on Python 3.13.0")  # dynamo's, of that Python
        expected = model(X)
        run = torch.compile(model, backend=backend)
        found = [run(X) for _ in range(3)]
    assert all(torch.equal(each, expected) for each in found)
    assert 2 <= len(compiled) <= 4  # what is before and after the recording
    assert capfd.readouterr().err == ""


def test_the_calls_inside_are_recorded() -> None:
    traces: list[fxdebug.Trace] = []

    def keep(model: nn.Module, x: torch.Tensor) -> None:
        traces.append(fx_debug(model, x))

    torch.compile(Recorded(keep), backend="eager")(X)
    assert {call.path: call.status for call in traces[0].calls} == dict.fromkeys(["", "0", "1"], "verified")


NOTE = "{} was compiled with the backend 'eager', which compiles nothing: its Python ran"


def test_a_model_that_is_compiled_and_runs_as_python_has_a_note() -> None:
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    assert [note.what for note in fx_debug(model, X).notes] == [NOTE.format("the model")]
    inner = nn.Sequential(torch.compile(nn.Linear(2, 2), backend="eager"), nn.ReLU())
    inner[1].compile(backend="eager")
    assert [note.what for note in fx_debug(inner, X).notes] == [NOTE.format("0"), NOTE.format("1")]
    assert fx_debug(nn.Linear(2, 2), X).notes == ()


CLOSED = (
    "{} is compiled and ran as one piece: the modules inside it are not seen, as if never called. "
    "To see them, trace the model without torch.compile"
)


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    @torch.compile(backend="aot_eager")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Disabled(Decorated):
    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def assigned() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    model.forward = torch.compile(model.forward, backend="aot_eager")
    return model


def in_place() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    model[0].compile(backend="aot_eager")  # has no modules inside
    model[1].compile(backend="aot_eager")
    return model


HIDING: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "wrapped": (lambda: torch.compile(nn.Sequential(nn.Linear(2, 2)), backend="aot_eager"), ["the model"]),
    "in place": (in_place, ["1"]),
    "assigned": (assigned, ["the model"]),
    "decorated": (Decorated, ["the model"]),
    "a decorated part": (lambda: nn.Sequential(Decorated()), ["0"]),
    "disabled": (Disabled, []),
    "not compiled": (lambda: nn.Sequential(nn.Linear(2, 2)), []),
}


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("name", HIDING)
def test_a_compiled_module_that_hides_others_has_a_note(name: str, graph: bool) -> None:
    make, hiding = HIDING[name]
    model = make()
    expected = model(X)
    trace = fx_debug(model, X, graph=graph)
    assert [note.what for note in trace.notes] == [CLOSED.format(each) for each in hiding]
    assert torch.equal(trace.output, expected)


def test_the_drop_in_notes_it_too(tmp_path: Path) -> None:
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    with fxdebug.model_addition_debugger_context(model, tmp_path):  # type: ignore[arg-type]
        model(X)
    assert any(path.name.endswith("_SUMMARY.json") for path in tmp_path.iterdir())
