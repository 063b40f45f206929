"""Durations of calls have the time of the model, not that of fxdebug."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.capture.recorder import recorder
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.tape import run_taped, tape_mode
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.native import dispatch

SLOW = 0.02  # seconds that each step of ours takes here
OURS = [(Recorder, "_inputs"), (Recorder, "_outputs"), (ValueTable, "add"), (Tape, "_codes"), (Tape, "_note"),
        (Tape, "_note_arguments"), (Tape, "leave_call")]  # fmt: skip


class Waits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01)
        return torch.relu(x * 2) + 1


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Waits(), Waits()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) * 3


@pytest.mark.parametrize("graph", [False, True])
def test_a_slow_recording_does_not_show_in_durations(graph: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def slowed(original: Any) -> Any:
        def slow(*args: Any, **kwargs: Any) -> Any:
            sleep(SLOW)
            return original(*args, **kwargs)

        return slow

    for module in (recorder, run_taped, tape_mode):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    for owner, name in OURS:
        monkeypatch.setattr(owner, name, slowed(getattr(owner, name)))
    with dispatch.using(None):  # the native core runs no methods that could be slowed
        trace = fx_debug(Model(), torch.ones(2), graph=graph)
    assert trace.duration > (0.4 if graph else 0.1)
    assert [call.duration for call in trace.calls] == pytest.approx([0.02, 0.01, 0.01])
