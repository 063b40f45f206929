"""Writes of other threads and of finalizers stay, also while bodies are re-executed."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.replay import pause_gc_and_threads
from fxdebug.capture.replay.pause_gc_and_threads import gc_paused, is_only_thread, threads_paused

written: list[int] = []


class Noting(nn.Module):
    """Has a forward that can reach a list to which another thread writes."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.below = Noting(depth - 1) if depth else None
        self.scale = depth + 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(written) < 0:
            written.append(0)
        x = x * self.scale
        return x if self.below is None else self.below(x)


def test_writes_of_another_thread_stay_while_bodies_are_re_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_gc_and_threads, "SWITCH_INTERVAL", 60.0)  # on a busy machine a body takes long
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
        while made <= 20:
            forget_templates()
            trace = fx_debug(Noting(8), torch.ones(2))
            assert trace.call_graphs is not None
    finally:
        stop.set()
        worker.join()
    assert made > 20
    assert sorted(set(range(made)) - set(written)) == []


def test_the_switch_interval_is_restored() -> None:
    before = sys.getswitchinterval()
    first, second = threads_paused(), threads_paused()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() > before
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() > before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before
    with contextlib.suppress(ValueError), threads_paused():
        raise ValueError
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("block", [threads_paused, gc_paused])
def test_the_garbage_collector_is_off_inside_the_block(block: type[contextlib.AbstractContextManager]) -> None:
    assert gc.isenabled()
    with block():
        with block():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with block():
            pass
        assert not gc.isenabled()  # the program's own wish
    finally:
        gc.enable()


freed: list[str] = []


class Lettered(nn.Module):
    """Makes the garbage collector run during its forward, by many objects or by asking for it."""

    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.asks = asks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.asks:
            gc.collect()
        made = [[number] for number in range(50_000)]
        return x * len(made) if len(freed) >= 0 else x


@contextlib.contextmanager
def old_objects_put_aside() -> Iterator[None]:
    gc.freeze()  # a collection looks at what is new, and takes no third of a second
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def collected_within_a_body() -> Iterator[None]:
    before = gc.get_threshold()
    gc.freeze()
    gc.collect()  # with few old objects left all of them are looked through
    gc.set_threshold(10_000, 1, 1)  # for the first time in the body
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@pytest.mark.parametrize("asks", [False, True])
def test_finalizers_of_the_program_run_once_and_their_effects_stay(asks: bool, tmp_path: Path) -> None:
    class Ring:
        def __init__(self) -> None:
            self.itself = self

    def remove(file: Path) -> None:
        freed.append(file.name)
        file.unlink()

    freed.clear()
    forget_templates()
    models = nn.Sequential(*[Lettered(asks) for _ in range(4)])
    files = [tmp_path / str(number) for number in range(12)]
    with old_objects_put_aside() if asks else collected_within_a_body():
        rings = [Ring() for _ in files]
        for file, ring in zip(files, rings, strict=True):
            file.touch()
            weakref.finalize(ring, remove, file)
        del ring
        trace = fx_debug(models, torch.ones(2))
        rings.clear()
        assert trace.call_graphs is not None  # now the bodies are run again
    gc.collect()
    assert sorted(freed) == sorted(file.name for file in files)
    assert not any(file.exists() for file in files)


def test_a_switch_interval_that_the_program_sets_in_the_block_stays() -> None:
    before = sys.getswitchinterval()
    try:
        with threads_paused():
            sys.setswitchinterval(0.25)
        assert sys.getswitchinterval() == 0.25
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("kind", ["tqdm", "a thread of the program's"])
def test_only_threads_that_may_run_code_of_the_program_count(kind: str) -> None:
    from tqdm._monitor import TMonitor
    from tqdm.std import TqdmDefaultWriteLock, tqdm

    over = threading.Event()
    if kind == "tqdm":
        tqdm.set_lock(TqdmDefaultWriteLock())
        monitor = TMonitor(tqdm, 10)
        leave = monitor.exit
    else:
        thread = threading.Thread(target=over.wait)
        thread.start()
        leave = over.set
    try:
        others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
        assert len(others) >= 1
        assert is_only_thread() == (kind == "tqdm")
    finally:
        leave()
