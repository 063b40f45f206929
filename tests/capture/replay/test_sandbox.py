"""Code that runs in a sandbox leaves everything as it was, however it ends."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import io
import random
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks.observers import visible_in_thread
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.replay.sandbox import sandboxed

VARIABLE = contextvars.ContextVar("variable", default=0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.log: list[int] = []

    def touch(self) -> int:
        """Change all that a sandbox restores."""
        self.calls += 1
        self.log.append(self.calls)
        self.late = nn.ReLU()
        VARIABLE.set(1)
        warnings.simplefilter("error")
        return self.calls

    def draw(self) -> None:
        random.random()
        np.random.rand()
        torch.rand(2)


def test_code_in_a_sandbox_returns_its_result_and_changes_nothing() -> None:
    model = Model()
    filters = list(warnings.filters)
    with sandboxed(model) as sandbox:
        assert [sandbox.run(model.touch) for _ in range(3)] == [1, 1, 1]
        assert sandbox.snapshot().has_changes
        assert (model.calls, model.log, hasattr(model, "late")) == (0, [], False)
    assert (VARIABLE.get(), warnings.filters) == (0, filters)


def test_code_that_raises_changes_nothing_either() -> None:
    model = Model()

    def fail() -> None:
        model.touch()
        raise KeyError("mine")

    with sandboxed(model) as sandbox, pytest.raises(KeyError, match="mine"):
        sandbox.run(fail)
    assert (model.calls, model.log) == (0, [])


def test_generators_are_restored_at_the_end_of_the_block() -> None:
    model = Model()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    with sandboxed(model) as sandbox:
        sandbox.run(model.touch)
        assert not sandbox.snapshot().has_drawn_numbers
        sandbox.run(model.draw)
        assert sandbox.snapshot().has_drawn_numbers and not sandbox.snapshot().has_changes
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # type: ignore[index, union-attr]


def test_objects_that_the_program_passes_are_restored_too() -> None:
    cache: list[int] = []
    with sandboxed(Model(), [cache]) as sandbox:
        sandbox.run(cache.append, 1)
    assert cache == []


def test_effects_are_blocked_during_a_run_and_not_between_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with sandboxed(Model()) as sandbox:
        sandbox.run(lambda: print("not shown"))
        print("shown")
        with pytest.raises(CannotTrace) as caught:
            sandbox.run(lambda: input())
    assert capsys.readouterr().out == "shown\n"
    assert caught.value.reason == reasons.ASKS_FOR_INPUT()


def test_a_run_that_restores_nothing_takes_no_snapshot() -> None:
    model = Model()
    with sandboxed(model) as sandbox:
        sandbox.run(model.log.append, 1, restoring=False)
        assert not sandbox.is_changed_for(model)
    assert model.log == [1]


def test_the_collector_is_off_and_recordings_do_not_see_the_thread_until_the_end() -> None:
    with sandboxed(Model()):
        assert not gc.isenabled() and list(visible_in_thread.values()) == [()]
    assert gc.isenabled() and not visible_in_thread


def test_an_interrupt_while_the_snapshot_is_restored_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt), sandboxed(model) as sandbox:
        sandbox.run(model.draw)
        restore, interrupts = sandbox.snapshot().restore, iter([True])

        def interrupted() -> None:
            if next(interrupts, False):
                raise KeyboardInterrupt
            restore()

        monkeypatch.setattr(sandbox.snapshot(), "restore", interrupted)
    assert torch.equal(torch.get_rng_state(), before)
    assert gc.isenabled() and not visible_in_thread


class Touches(nn.Module):
    """Changes one thing of each kind, by its name."""

    total = 0
    seen = [0]

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.log, self.table = 0, [1], {"a": 1}
        self.inner = nn.ReLU()

    def change(self, what: str) -> None:
        if what == "attribute":
            self.calls += 1
        elif what == "list":
            self.log.append(2)
        elif what == "mapping":
            self.table["a"] = 2
        elif what == "class":
            type(self).total += 1
        elif what == "list of the class":
            self.seen.append(1)
        elif what == "inner":
            self.inner.calls = 1


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("nothing", ""),
        ("attribute", "Touches.calls"),
        ("list", "Touches.log"),
        ("mapping", "Touches.table"),
        ("class", "Touches.total"),
        ("list of the class", "a list"),
        ("inner", "ReLU.calls"),
    ],
)
def test_what_code_changes_in_a_sandbox_has_a_name(what: str, name: str) -> None:
    model = Touches()
    with sandboxed(model) as sandbox:
        sandbox.run(model.change, what)
        assert (sandbox.snapshot().changed, sandbox.snapshot().has_changes) == (name, what != "nothing")
    assert (model.calls, model.log, model.table, Touches.total, Touches.seen) == (0, [1], {"a": 1}, 0, [0])


def test_outside_of_a_run_nothing_is_changed_and_nothing_can_be_put_back() -> None:
    model = Touches()
    with sandboxed(model) as sandbox:
        assert (sandbox.changes_for(model), sandbox.plain_changes(), sandbox.naming_len()) == ([], [], [])
        assert not sandbox.has_switched() and not sandbox.is_changed_for(model)
        model.calls = 3
        sandbox.put_back(vars(model), "calls")
        sandbox.restore()
        assert model.calls == 3


def test_inside_of_a_run_changes_are_told_and_one_attribute_can_be_put_back() -> None:
    model = Touches()

    def body() -> None:
        model.change("attribute")
        assert sandbox.is_changed_for(model) and not sandbox.is_changed_for(model.inner)
        model.change("list")
        assert [change.content for change in sandbox.plain_changes()] == [1]
        sandbox.put_back(vars(model), "calls")
        sandbox.put_back({}, "calls")  # of no place that is known
        assert (model.calls, model.log) == (0, [1, 2]) and sandbox.plain_changes() == []

    with sandboxed(model) as sandbox:
        sandbox.run(body)
        assert model.log == [1]


def test_what_code_says_is_heard_where_it_listens_itself_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> tuple[str, str, list[str]]:
        print("to nobody")
        print("to nobody", file=sys.stderr)
        warnings.warn("to nobody", stacklevel=1)
        own, given = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(own), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print("mine")
            print("given", file=given)
            warnings.warn("caught", stacklevel=1)
        return own.getvalue(), given.getvalue(), [str(one.message) for one in caught]

    with warnings.catch_warnings(record=True) as outside, sandboxed(Model()) as sandbox:
        warnings.simplefilter("always")
        assert sandbox.run(body) == ("mine\n", "given\n", ["caught"])
    assert (capsys.readouterr(), outside) == (("", ""), [])
