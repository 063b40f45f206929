"""What other threads of the program do while a run is explained stays done."""

from __future__ import annotations

import contextlib
import sys
import threading

import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.explain import forget_patterns
from fxdebug.capture.undisturbed import undisturbed

written: list[int] = []


class Noting(nn.Module):
    """Its forward can reach a list that another thread writes to."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.below = Noting(depth - 1) if depth else None
        self.scale = depth + 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(written) < 0:
            written.append(0)
        x = x * self.scale
        return x if self.below is None else self.below(x)


def test_what_another_thread_writes_while_bodies_are_run_again_is_not_taken_back() -> None:
    stop = threading.Event()
    made = 0

    def work() -> None:
        nonlocal made
        while not stop.is_set():
            written.append(made)
            made += 1
            stop.wait(0.0005)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            forget_patterns()
            trace = fx_debug(Noting(8), torch.ones(2))
            assert trace.explanation is not None
    finally:
        stop.set()
        worker.join()
    assert made > 20
    missing = sorted(set(range(made)) - set(written))
    assert len(missing) <= made // 20, f"{len(missing)} of {made} entries are gone"  # written at the very moment


def test_the_interval_at_which_threads_change_is_put_back() -> None:
    before = sys.getswitchinterval()
    first, second = undisturbed(), undisturbed()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() > before
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() > before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before
    with contextlib.suppress(ValueError), undisturbed():
        raise ValueError
    assert sys.getswitchinterval() == before


def test_an_interval_that_the_program_sets_meanwhile_stays() -> None:
    before = sys.getswitchinterval()
    try:
        with undisturbed():
            sys.setswitchinterval(0.25)
        assert sys.getswitchinterval() == 0.25
    finally:
        sys.setswitchinterval(before)


def test_runs_in_other_threads_are_no_part_of_what_a_model_can_reach() -> None:
    from fxdebug.capture.reach import Reach

    found: list[set[str]] = []

    class Looking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            reach = Reach(self)
            found.append({type(thing).__module__.partition(".")[0] for thing in (*reach.others, *reach.slotted)})
            return super().forward(x)

    fx_debug(Looking(2, 2), torch.ones(1, 2), graph=False)
    assert found and all("fxdebug" not in homes for homes in found)
