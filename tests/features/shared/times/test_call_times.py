"""Times of calls by the clock of a device that works behind the program, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug.api.run_model import fx_debug
from fxdebug.data.measured.timings import Timings
from fxdebug.features.profile.report import Items, profile_report, profiles
from fxdebug.features.shared.times import call_times
from fxdebug.features.shared.times.call_times import DeviceClock
from fxdebug.features.shared.times.timed_runs import TimedRuns


class Device:
    """A device with a queue: work and events are queued at once, and done only when somebody waits."""

    def __init__(self) -> None:
        self.queued = 0  # nanoseconds of work
        self.running = False  # is a forward queueing work?
        self.waits_inside = 0

    def work(self, nanoseconds: int) -> None:
        self.queued += nanoseconds

    def __call__(self) -> int:
        return self.queued  # the moment at which the device will arrive here

    def nanoseconds(self, begin: int, end: int) -> int:
        self.waits_inside += self.running
        return end - begin


class Works(nn.Module):
    def __init__(self, device: Device, nanoseconds: int) -> None:
        super().__init__()
        self.device, self.nanoseconds = device, nanoseconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.device.work(self.nanoseconds)
        return x + 1


class Net(nn.Module):
    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.first, self.second = Works(device, 3_000_000), Works(device, 5_000_000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.device.running = True
        x = self.second(self.first(x))
        self.device.work(1_000_000)
        self.device.running = False
        return x


def test_times_are_the_devices_and_nothing_waits_for_it_during_a_run() -> None:
    device = Device()
    model = Net(device)
    timings, raised = TimedRuns(model, model, (torch.ones(2),), {}, None, clock=device).run(repeats=3, warmup=1)
    assert raised is None and device.waits_inside == 0
    assert {path: times for (path, _), times in timings.own.items()} == {
        "": [1_000_000] * 3, "first": [3_000_000] * 3, "second": [5_000_000] * 3,
    }  # fmt: skip
    assert timings.calls["", 0] == [9_000_000] * 3
    assert [(span.path, span.begin, span.end) for span in timings.spans] == [
        ("", 0, 9_000_000), ("first", 0, 3_000_000), ("second", 3_000_000, 8_000_000),
    ]  # fmt: skip


def test_the_clock_of_a_device_records_events_and_waits_only_to_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    @dataclass
    class Event:
        device: torch.device
        enable_timing: bool

        def record(self) -> None:
            done.append("record")

        def synchronize(self) -> None:
            done.append("wait")

        def elapsed_time(self, other: Event) -> float:
            return 1.5  # ms

    monkeypatch.setattr(call_times.torch, "Event", Event)
    clock = DeviceClock(torch.device("cuda"))
    begin, end = clock(), clock()
    assert done == ["record", "record"] and begin.enable_timing
    assert clock.nanoseconds(begin, end) == 1_500_000 and done[2:] == ["wait"]


def test_p3_the_report_has_the_mean_and_the_most_of_the_samples() -> None:
    trace = fx_debug(nn.ReLU(), torch.ones(2))
    timings: Any = Timings(plain=[10], calls={("", 0): [10]}, own={("", 0): [10]}, device_use=[10.0, 50.0, 90.0])
    report = profile_report(trace, timings, profiles(trace, timings), peak=None, settings={}, items=Items())
    assert (report.totals["GPU use"], report.totals["GPU use, most"]) == ((50.0, "%"), (90.0, "%"))
    assert not [note for note in report.notes if "GPU" in note.what]
