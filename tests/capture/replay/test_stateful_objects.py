"""Computations that no tape sees happen once: not again when a body is verified or a graph is checked."""

from __future__ import annotations

import array
import functools
import hashlib
import io
import itertools
import queue
import random
import re
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.replay.stateful_objects import blocker, restorer


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


@functools.lru_cache
def cached() -> int:
    return 1


FILE = "it uses a file that the program holds open"
TAKES = "it takes from an iterator that the program holds"
BLOCKED: dict[str, tuple[Any, str]] = {
    "file": (io.StringIO, FILE),
    "method of a file": (lambda: io.StringIO().read, FILE),
    "queue in C": (queue.SimpleQueue, "it uses a SimpleQueue that the program holds"),
    "event": (threading.Event, "it uses an Event that the program holds"),
    "digest": (hashlib.sha256, "it uses a HASH that the program holds"),
    "iterator": (lambda: iter([1]), TAKES),
    "generator": (lambda: (x for x in [1]), TAKES),
    "counter": (itertools.count, TAKES),
    "large array": (lambda: np.zeros(1 << 24, np.uint8), "it uses a large array of numpy's that the program holds"),
}


@pytest.mark.parametrize("name", BLOCKED)
def test_what_cannot_be_undone_is_blocked_in_the_thread_that_traces_alone(name: str) -> None:
    make, reason = BLOCKED[name]
    found = blocker(make())
    enter = type(found).__enter__
    for use in (
        lambda: found.anything,
        lambda: found(),
        lambda: next(found),
        lambda: iter(found),
        lambda: enter(found),
    ):
        with pytest.raises(CannotTrace, match=f"^{re.escape(reason)}$"):
            use(*[found] * (use is type(found).__enter__))
    kinds: list[type] = []
    thread = threading.Thread(target=lambda: kinds.append(type(found.__doc__)))
    thread.start()
    thread.join()
    assert kinds == [str]


@pytest.mark.parametrize(
    "thing",
    [
        1,
        "text",
        [1],
        {},
        queue.Queue(),
        threading.Lock(),
        [].append,
        np.zeros((1 << 24) - 1, np.uint8),
        random.Random(),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_can_be_undone_is_not_blocked(thing: Any) -> None:
    assert blocker(thing) is None


def test_a_cache_is_replaced_by_the_function_behind_it() -> None:
    assert blocker(cached) is cached.__wrapped__


def _frozen() -> Any:
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    return frozen


@pytest.mark.parametrize(
    ("make", "change", "content"),
    [
        (lambda: random.Random(0), lambda one: one.random(), lambda one: one.getstate()),
        (
            lambda: torch.Generator().manual_seed(0),
            lambda one: torch.rand(1, generator=one),
            lambda one: one.get_state().tolist(),
        ),
        (lambda: array.array("i", [1, 2]), lambda one: one.append(3), list),
        (lambda: bytearray(b"ab"), lambda one: one.extend(b"c"), bytes),
        (lambda: np.random.RandomState(0), lambda one: one.rand(), lambda one: one.get_state()[1].tolist()),
        (lambda: np.random.default_rng(0), lambda one: one.random(), lambda one: one.bit_generator.state),
        (lambda: np.zeros(2), lambda one: one.fill(3), list),
    ],
    ids="Random Generator array bytearray RandomState numpy.Generator ndarray".split(),
)
def test_a_state_is_restored_and_told_where_it_has_changed(make: Any, change: Any, content: Any) -> None:
    thing = make()
    before, restore = content(thing), restorer(thing)
    assert restore is not None and not restore()
    change(thing)
    assert content(thing) != before and restore() and content(thing) == before and not restore()


@pytest.mark.parametrize(
    "thing", [1, [1], _frozen(), np.zeros(1 << 24, np.uint8)], ids=["int", "list", "frozen", "large"]
)
def test_other_objects_have_no_state_of_their_own(thing: Any) -> None:
    assert restorer(thing) is None


def test_another_thread_uses_what_is_blocked_as_it_is() -> None:
    found, text = blocker(io.StringIO("a\nb")), list[str]()

    def use() -> None:
        with found as inside:
            text.extend(inside)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert text == ["a\n", "b"]
