"""Time every module call of a run that is not recorded: no tape, no statistics, one clock reading at each end.

The clock is that of the device which does the work: ``perf_counter_ns`` on the CPU, events of the accelerator's stream
elsewhere. Events are read after the run, so that nothing waits for the device while it works.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import nn

from fxdebug.capture.hooks.observers import ForwardsOnly
from fxdebug.capture.recorder.module_names import Sites


class Clock(Protocol):
    """Readings of a clock: taken while the model runs, turned into nanoseconds afterwards."""

    def __call__(self) -> Any: ...

    def nanoseconds(self, begin: Any, end: Any) -> int:
        """Return the time between two readings; may wait for the device."""


class CpuClock:
    """The clock of the process."""

    __call__ = staticmethod(time.perf_counter_ns)

    def nanoseconds(self, begin: int, end: int) -> int:
        """Return the time between two readings."""
        return end - begin


class DeviceClock:
    """Events on the current stream of an accelerator: they note when the device itself arrives at them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self) -> torch.Event:
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, begin: torch.Event, end: torch.Event) -> int:
        """Return the device's time between two events, once it has reached the second."""
        end.synchronize()
        return int(begin.elapsed_time(end) * 1e6)


@dataclass(slots=True)
class TimedCall:
    """One call: its module's path, the number of calls of this path before it, its depth, and when it ran."""

    path: str
    number: int
    depth: int
    begin: Any
    end: Any = None
    parent: int | None = None  # position of the call it was made in


class CallTimes(ForwardsOnly):
    """An observer of a model's modules that notes when each call began and ended, in the thread that runs the model."""

    def __init__(self, sites: Sites, clock: Clock) -> None:
        self.calls: list[TimedCall] = []
        self.elsewhere = 0  # calls in other threads: they are not timed
        self._sites = sites
        self._now = clock
        self._owner = get_ident()
        self._numbers: dict[str, int] = {}
        self.open_calls: list[int] = []  # positions in ``calls``, innermost last
        self.around: Callable[..., Any] | None = None  # runs a forward with operations timed, too

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward and note when it began and ended."""
        site = self._sites.of(module)
        if site is None or get_ident() != self._owner:
            self.elsewhere += site is not None
            return run(*args, **kwargs)
        path, stack = site.path, self.open_calls
        number = self._numbers[path] = self._numbers.get(path, -1) + 1
        call = TimedCall(path, number, len(stack), None, parent=stack[-1] if stack else None)
        stack.append(len(self.calls))
        self.calls.append(call)
        call.begin = self._now()
        try:
            return run(*args, **kwargs) if self.around is None else self.around(module, run, args, kwargs)
        finally:
            call.end = self._now()
            stack.pop()
