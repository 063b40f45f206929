"""Threads that trace at the same time: each trace says what it would have said alone, and generators stay as they were.

``make sweep`` runs eight threads over all traps; here two threads meet at the places where they once disturbed each
other.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.replay import pause_gc_and_threads
from fxdebug.capture.replay.rng import RngSnapshot, RngWatch
from fxdebug.capture.replay.sandbox import sandboxed
from fxdebug.capture.tensors.shown_text import text_of
from support import sweep
from zoo import traps


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def is_waiting(work: Future[Any]) -> bool:
    """Does work of another thread, which takes some milliseconds alone, not end?"""
    try:
        work.result(0.3)
    except TimeoutError:
        return True
    return False


class Shown:
    def __repr__(self) -> str:
        return "shown"


LINEAR = nn.Linear(2, 2)


def traces() -> str:
    forget_templates()
    return fx_debug(nn.Sequential(LINEAR, nn.ReLU()), torch.ones(1, 2)).root.status


WORK: dict[str, Callable[[], Any]] = {
    "a trace": traces,
    "a snapshot of generators": lambda: RngSnapshot().restore(),
    "the text of an object": lambda: text_of(Shown(), repr),
}


@pytest.mark.parametrize("name", WORK)
def test_what_would_change_generators_waits_while_another_thread_runs_a_body_again(
    name: str, other: ThreadPoolExecutor
) -> None:
    other.submit(WORK[name]).result()  # alone: all that is imported and built once is there
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with sandboxed(LINEAR):
        watch = RngWatch()
        watch.check()
        work = other.submit(WORK[name])
        assert is_waiting(work)
        watch.check()  # raises if the other thread has set a seed
        watch.restore()
    assert work.result() in ("verified", None, "shown")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_thread_does_not_wait_for_ever_for_one_that_waits_for_it(
    other: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause_gc_and_threads, "PATIENCE", 0.05)
    with sandboxed(LINEAR):
        assert other.submit(traces).result(60) == "verified"


def test_a_forked_process_waits_for_no_thread_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with sandboxed(LINEAR):
            inside.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert inside.wait(60)
        monkeypatch.setattr("os.getpid", lambda: -1)  # as in a child, which has no other thread
        monkeypatch.setattr(pause_gc_and_threads, "PATIENCE", 3600.0)
        assert traces() == "verified"
    finally:
        monkeypatch.undo()
        over.set()
        holder.join()


def told(name: str) -> Any:
    kind, train = traps.TRAPS[name]
    model = kind().train(train)
    try:
        return [(call.id, call.status, call.reason) for call in fx_debug(model, torch.ones(3, 8)).calls]
    except Exception as error:
        return type(error)


SETS_SEEDS = "rng_py rng_py2 manual_seed_".split()  # in all threads: torch has one generator for them


@pytest.mark.skipif(not sweep.whole(), reason="make sweep: two minutes; the tests above have what it found")
def test_eight_threads_are_told_what_each_is_told_alone() -> None:
    names = [name for name in traps.TRAPS if name not in SETS_SEEDS]
    alone = {name: told(name) for name in names for _ in range(2)}
    different: list[str] = []

    def work(seed: int) -> None:
        choice = random.Random(seed)
        for name in choice.choices(names, k=500):
            found = told(name)
            if found != alone[name]:
                different.append(f"{name}: {found}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert different == []
