"""Computations that no tape sees happen once: not again when a body is verified or a graph is checked."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.seen = self.count.numpy()  # the same memory
        self.draws = random.Random(0)

    def counted(self) -> tuple[float, float]:
        return float(self.count), float(self.seen)  # type: ignore[arg-type]


@torch.jit.script
def counts_up(count: torch.Tensor):  # type: ignore[no-untyped-def]
    count.add_(1.0)


class InScriptedCode(Counts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        counts_up(self.count)
        return self.linear(x) * self.count


class WithTorchFunctionsOff(Counts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            self.count.add_(1)  # type: ignore[operator]
        return self.linear(x) * self.count


class InNumpy(Counts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        np.add(self.seen, 1, out=self.seen)
        return self.linear(x) * self.count


class OfItsOwnDraws(Counts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if self.draws.random() < 2 else x


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def traced(model: nn.Module) -> Trace:
    with torch.no_grad():
        return fx_debug(model, torch.randn(3, 4))


def reason_of(call: Any) -> str:
    return str(call.reason.partition(" (test_")[0])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (InScriptedCode, "it runs a scripted function"),
        (
            WithTorchFunctionsOff,
            "aten.add_.Tensor was called past torch's Python functions, as C or scripted code does",
        ),
    ],
)
def test_a_write_that_no_mode_sees_happens_once(kind: type[Counts], reason: str) -> None:
    model = kind()
    assert (traced(model).root.status, reason_of(traced(model).root)) == ("recorded", reason)
    assert model.counted() == (2, 2)


CHANGES = r"its Python changes attributes or other objects that last( \(.+\))?, and a graph does not"


@pytest.mark.parametrize("kind", [InNumpy, OfItsOwnDraws])
def test_a_graph_refuses_to_run_where_its_body_changes_an_array_or_a_generator(kind: type[Counts]) -> None:
    model = kind()
    trace = traced(model)
    state = model.counted(), model.draws.getstate()
    with pytest.raises(fxdebug.UsageError, match=CHANGES):
        trace.root.fx(torch.randn(3, 4))
    assert state == (model.counted(), model.draws.getstate())
    assert state[0] == ((1, 1) if kind is InNumpy else (0, 0))


@pytest.mark.parametrize("rows", [3, 5])
def test_scripted_code_in_a_call_writes_once_although_the_graph_is_checked(rows: int) -> None:
    model = Outer(InScriptedCode())
    trace, x = traced(model), torch.randn(rows, 4)
    with torch.no_grad():
        found = trace.root.fx(x)
        assert model.inner.counted() == (2, 2)  # type: ignore[operator]
        model.inner.count.fill_(1)  # type: ignore[operator, union-attr]
        assert torch.equal(found, model(x))


def test_a_scripted_module_writes_its_buffers_once_although_the_graph_is_checked() -> None:
    model = Outer(torch.jit.script(nn.BatchNorm1d(4)))
    norm: Any = model.inner
    trace, x = traced(model), torch.randn(5, 4)
    before = norm.running_mean.clone()
    with torch.no_grad():
        found = trace.root.fx(x)
        assert norm.num_batches_tracked.item() == 2
        norm.running_mean.copy_(before)
        assert torch.equal(found, model(x))


SCALE = 2.0
SHIFT = torch.ones(4)


class ByGlobals(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * SCALE + SHIFT


@pytest.mark.parametrize(("name", "other"), [("SCALE", 3.0), ("SHIFT", torch.zeros(4))])
def test_a_graph_refuses_to_run_after_a_global_of_the_program_has_changed(
    name: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, x = traced(ByGlobals()).root.fx, torch.randn(3, 4)
    assert torch.equal(graph(x), x * 2 + 1)
    monkeypatch.setitem(globals(), name, other)
    with pytest.raises(fxdebug.UsageError, match="does something else"):
        graph(x)
