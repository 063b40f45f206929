"""Clocks that tests move themselves: times that no other program on the machine can change."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fxdebug.features.shared.times import timed_runs

STEP = 5_000  # nanoseconds that pass between two readings


class CountedClock:
    """A clock that goes on with each reading, by what ``step`` says, and with each sleep by its seconds."""

    def __init__(self, step: Callable[[], float] = lambda: STEP) -> None:
        self.now, self._step = 0, step

    def __call__(self) -> int:
        self.now += int(self._step())
        return self.now

    def nanoseconds(self, begin: int, end: int) -> int:
        return end - begin

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


class ProcessClock:
    """The time that this process works: it does not go on while others do."""

    __call__ = staticmethod(time.process_time_ns)

    def nanoseconds(self, begin: int, end: int) -> int:
        return end - begin


@contextmanager
def profiled_by(clock: CountedClock | ProcessClock) -> Iterator[None]:
    """Let profiles on the CPU, and sleeps, go by a clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_runs, "CpuClock", lambda: clock)
        patch.setattr(timed_runs, "time", SimpleNamespace(perf_counter_ns=clock, process_time_ns=clock))
        if isinstance(clock, CountedClock):
            patch.setattr(time, "sleep", clock.sleep)
        yield


def busy_machine(seed: int) -> CountedClock:
    """The clock of a machine with other work: spells in which all is slow, and moments that wait for a turn."""
    chance, spell = random.Random(seed), [0, 1.0]

    def step() -> float:
        if not spell[0]:
            spell[:] = [chance.randrange(10, 400), chance.choice((1.0, 1.0, 1.3, 2.0))]
        spell[0] -= 1
        waits = 400_000 if chance.random() < 0.01 else 0
        return STEP * spell[1] * chance.lognormvariate(0, 0.15) + waits

    return CountedClock(step)
