"""Ctrl-C at any moment of our code: everything is restored, and the interrupt reaches the user."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.graphs.placeholder_tensor import count_placeholders
from fxdebug.capture.replay.pause_gc_and_threads import in_turn
from fxdebug.store.staging_folder import StagingFolder

OURS = os.path.dirname(fxdebug.__file__)
MOMENTS = int(os.environ.get("FXDEBUG_INTERRUPTS", "60"))  # of some thousands: after a change, try all of them once


def model() -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout()) for _ in range(2)]).eval()


def process() -> dict[str, Any]:
    """Return the state outside of the model that a run changes."""
    return {
        "call": nn.Module._call_impl.__code__, "limit": sys.getrecursionlimit(), "gradients": torch.is_grad_enabled(),
        "functions": torch._C._is_torch_function_enabled(), "modes": torch._C._len_torch_function_stack(),
        "dispatch": torch._C._len_torch_dispatch_stack(), "start": threading.Thread.start, "out": sys.stdout,
        "print": print, "sleep": time.sleep, "collector": gc.isenabled(), "interval": sys.getswitchinterval(),
        "shown": warnings.showwarning, "swap": torch.utils.swap_tensors, "another thread waits": another_thread_waits(),
    }  # fmt: skip


def another_thread_waits() -> bool:
    """Is the turn of this thread to re-execute bodies not over for another one?"""

    def take_turn() -> None:
        with in_turn():
            pass

    thread = threading.Thread(target=take_turn)
    thread.start()
    thread.join(2.0)
    return thread.is_alive()


def interrupted(run: Callable[[], Any], moment: int | None) -> tuple[int, BaseException | None]:
    """Run with an interrupt at one of the moments at which Python lets one come: at a call of ours, or after one of
    C's. Returns how many such moments there were, and what came out."""
    count = 0

    def look(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS) and not _is_freeing(frame):
            count += 1
            if count == moment:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        run()
    except BaseException as error:
        return count, error
    finally:
        sys.setprofile(None)
    return count, None


def _is_freeing(frame: Any) -> bool:
    """Does the frame free an object? Python ignores an exception there, with a message."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "forget", "_remove_own"):
            return True
        frame = frame.f_back
    return False


@pytest.mark.parametrize("what", ["known", "new", "tensors"])
def test_an_interrupt_at_any_moment_leaves_nothing_behind(what: str) -> None:
    watched, x = model(), torch.ones(2, 4)

    def run() -> None:
        if what == "new":
            forget_templates()
        trace = fxdebug.fx_debug(watched, x, values="tensors" if what == "tensors" else "stats")
        assert [call.status for call in trace.calls] == ["verified"] * 9

    for _ in range(3):
        run()
    total, error = interrupted(run, None)
    assert error is None and total > 1000
    step = max(1, total // MOMENTS)
    raised = 0
    for moment in range(1 + step // 2, total, step):
        before = process()
        _, error = interrupted(run, moment)
        assert error is None or type(error) is KeyboardInterrupt, (moment, error)
        raised += error is not None
        del error
        assert process() == before, moment
        assert not [name for name, inner in watched.named_modules() if "forward" in vars(inner)], moment
    assert raised > MOMENTS // 2
    run()


def test_the_thread_that_writes_ends_after_an_interrupt() -> None:
    class Stops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            fxdebug.fx_debug(Stops(), torch.ones(2), values="tensors")
    begun = set(threading.enumerate()) - before
    for thread in begun:
        thread.join(100)
    assert not any(thread.is_alive() for thread in begun)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exception_that_stops_the_float64_twin_stops_the_program(error: type[BaseException]) -> None:
    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype is torch.float64:
                raise error
            return self.linear(x)

    with pytest.raises(error):
        fxdebug.shadow(Stops(), torch.ones(1, 2))


def test_no_python_runs_where_a_tensor_of_a_run_is_freed() -> None:
    """Python drops an interrupt that comes there, and the program would go on."""
    watched, x = model(), torch.ones(2, 4)
    found: list[str] = []

    def look(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_name == "_remove" and "weak" in frame.f_code.co_filename:
            found.append(frame.f_back.f_code.co_qualname)

    fxdebug.fx_debug(watched, x)  # the native core is loaded once
    forget_templates()
    gc.collect()  # what earlier tests left goes now, and none of it meanwhile
    gc.disable()
    before = count_placeholders()
    sys.setprofile(look)
    try:
        trace = fxdebug.fx_debug(watched, x, values="tensors")
        assert [call.status for call in trace.calls] == ["verified"] * 9
    finally:
        sys.setprofile(None)
        gc.enable()
    assert found == [] and count_placeholders() == before


def test_an_interrupt_while_a_staging_folder_is_removed_leaves_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = StagingFolder()
    for name in "abc":
        (folder.path / name).write_text("")
    unlink, calls = Path.unlink, iter(range(100))

    def interrupted_once(path: Path, missing_ok: bool = False) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        folder.close()
    assert not folder.path.exists()
