"""Source lines in traces and tracebacks are those of the user and of torch, never ours."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x):
        return self.inner(x)


def lines_of(error):
    """Return file and line of every frame, without those of the test and of fx_debug."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(fxdebug.__file__).parent / "api")
    return [(f.filename, f.lineno, f.name) for f in frames[1:] if not f.filename.startswith(ours)]


def raised_by(run):
    with pytest.raises(RuntimeError) as caught:
        run()
    return caught.value


def test_a_traceback_has_the_same_lines_as_without_tracing():
    model, x = Fails(), torch.ones(1, 2)
    assert lines_of(raised_by(lambda: fx_debug(model, x))) == lines_of(raised_by(lambda: model(x)))


def test_the_traceback_of_a_failure_begins_in_the_module():
    raised_by(lambda: fx_debug(Fails(), torch.ones(1, 2)))
    (where,) = fxdebug.last_failed().find(where=lambda call: call.error.here if call.error else False)
    assert where.path == "inner.1"
    assert where.error.traceback.count("File ") == 1 and "linear.py" in where.error.traceback


def test_the_line_that_called_fx_debug_is_the_caller_of_the_root():
    trace = fx_debug(nn.ReLU(), torch.ones(1))
    file, _, line = trace.root.source.rpartition(":")
    assert file == __file__ and "fx_debug(nn.ReLU()" in Path(file).read_text().splitlines()[int(line) - 1]


class Raises(nn.Module):
    def forward(self, x):
        raise RuntimeError("the child's")


class TriesFirst(nn.Module):
    """Raises after it caught an exception of its child: Python may put the second where the first was."""

    def __init__(self, again):
        super().__init__()
        self.child = Raises()
        self.again = again

    def forward(self, x):
        kept = None
        try:
            self.child(x)
        except RuntimeError as error:
            kept = error if self.again else None
        if kept is not None:
            raise kept
        raise RuntimeError("its own")


class StepByStep(TriesFirst):
    def forward(self, x):
        yield x
        yield super().forward(x)


class Consumes(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        return list(self.steps(x))


@pytest.mark.parametrize("again", [False, True], ids=["another", "the-same"])
def test_an_exception_is_not_mistaken_for_one_that_was_caught_before(again):
    for _ in range(20):
        raised_by(lambda: fx_debug(TriesFirst(again), torch.ones(1)))
        calls = fxdebug.last_failed().calls
        assert [(call.path, call.error.message, call.error.here) for call in calls] == [
            ("", "the child's" if again else "its own", not again),
            ("child", "the child's", True),
        ]


@pytest.mark.parametrize("again", [False, True], ids=["another", "the-same"])
def test_an_exception_in_a_generator_is_not_mistaken_either(again):
    for _ in range(20):
        raised_by(lambda: fx_debug(Consumes(StepByStep(again)), torch.ones(1)))
        calls = fxdebug.last_failed().calls
        assert [(call.path, call.error.message, call.error.here) for call in calls] == [
            ("", "the child's" if again else "its own", False),
            ("steps", "the child's" if again else "its own", not again),
            ("steps.child", "the child's", True),
        ]


def test_a_failure_names_the_user_s_line_that_raised_it() -> None:
    class Refuses(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.checked(x)

        def checked(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no such thing")

    with pytest.raises(ValueError):
        fxdebug.fx_debug(Refuses(), torch.ones(2))
    trace = fxdebug.last_failed()
    assert trace is not None and trace.error is not None
    line = Refuses.checked.__code__.co_firstlineno + 1
    assert trace.error.source == f"{__file__}:{line}"
    assert "raised in Refuses (" in str(trace)
