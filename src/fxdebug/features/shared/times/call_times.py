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

from fxdebug.capture.probe import ForwardsOnly, Guard, Sites


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
    """One call or region: its path, the number of those with this path before it, its depth, and when it ran.

    The path of a region is that of the call or region it ran in, ``/``, and its name.
    """

    path: str
    number: int
    depth: int
    begin: Any
    end: Any = None
    parent: int | None = None  # position of the call or region it was made in
    is_region: bool = False


class CallTimes(ForwardsOnly):
    """An observer of a model's modules that notes when each call began and ended, in the thread that runs the model.

    It also listens to regions.

    >>> from fxdebug.capture.probe import Attached
    >>> sites = Sites(model := nn.Sequential(nn.ReLU(), nn.Tanh()))
    >>> with Attached(times := CallTimes(sites), sites):
    ...     result = model(torch.ones(2))
    >>> [(call.path, call.depth) for call in times.calls]
    [('', 0), ('0', 1), ('1', 1)]
    """

    def __init__(self, sites: Sites, clock: Clock | None = None) -> None:
        self.calls: list[TimedCall] = []
        self.elsewhere = 0  # calls in other threads: they are not timed
        self.guard = Guard(self.path)
        self._sites = sites
        self._now = CpuClock() if clock is None else clock
        self._owner = get_ident()
        self.numbers: dict[str, int] = {}
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
        position = self.guard("a call", self._begin, site.path)
        try:
            return run(*args, **kwargs) if self.around is None else self.around(module, run, args, kwargs)
        finally:
            if position is not None:
                self.guard("a call", self._end, position)

    def _begin(self, path: str, is_region: bool = False) -> int:
        stack = self.open_calls
        number = self.numbers[path] = self.numbers.get(path, -1) + 1
        call = TimedCall(path, number, len(stack), None, parent=self.innermost(), is_region=is_region)
        stack.append(len(self.calls))
        self.calls.append(call)
        call.begin = self._now()
        return stack[-1]

    def _end(self, position: int) -> None:
        """Note the end of a call, and of the regions in it that were not stopped."""
        end, stack = self._now(), self.open_calls
        while stack and stack[-1] >= position:
            self.calls[stack.pop()].end = end

    # Regions -------------------------------------------------------------------------------------

    def region_begins(self, name: str) -> int:
        """Note that a region begins; outside of the run and in other threads it is not timed."""
        if not self.open_calls or get_ident() != self._owner:
            return -1
        return self._begin(f"{self.path()}/{name}", is_region=True)

    def region_ends(self, number: int) -> None:
        """Note that a region ends."""
        if number in self.open_calls:
            self._end(number)

    # Where the run is ----------------------------------------------------------------------------

    def innermost(self) -> int | None:
        """Return the position of the innermost open call or region."""
        return self.open_calls[-1] if self.open_calls else None

    def path(self) -> str:
        """Return the path of the innermost open call or region; empty outside of the run."""
        return self.calls[self.open_calls[-1]].path if self.open_calls else ""

    def module_call(self, position: int | None) -> int | None:
        """Return the position of the module's call that a call or region is in, or is itself."""
        while position is not None and self.calls[position].is_region:
            position = self.calls[position].parent
        return position
