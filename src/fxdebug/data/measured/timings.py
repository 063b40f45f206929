"""Times of repeated runs, per call and operation: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fxdebug.brief import brief

CallKey: TypeAlias = tuple[str, int]  # path of the module, number of the call


@brief
@dataclass(slots=True)
class OpTiming:
    """The times of one operation in every repeat, in nanoseconds; ``backward`` is empty without a loss."""

    name: str
    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)


@brief
@dataclass(slots=True)
class RegionTiming:
    """The times of one region in every repeat, in nanoseconds: itself without calls and regions in it, and whole.

    ``call`` is the module's call that it ran in. ``backward`` is that of all operations in it; empty without a loss.
    """

    call: CallKey
    own: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)


class Span(NamedTuple):
    """One call or region in time, in nanoseconds since the first began."""

    path: str
    number: int
    begin: int
    end: int
    depth: int

    def name(self, model: str) -> str:
        """Return its path; the model's name stands for the path of the whole.

        >>> Span("", 0, 0, 5, 0).name("Net"), Span("/loop", 0, 1, 2, 1).name("Net"), Span("h.0", 0, 1, 2, 1).name("Net")
        ('Net', 'Net/loop', 'h.0')
        """
        return path_or_model(self.path, model)


def path_or_model(path: str, model: str) -> str:
    """Return the path of a call or region, with the model's name for the path of the whole."""
    return model + path if path[:1] in ("", "/") else path


@brief
@dataclass(slots=True)
class Timings:
    """Nanoseconds of every repeat, in the order of the repeats.

    ``plain`` are whole runs that nothing watched, ``processor`` the processor time of these, of all threads together,
    ``watched`` the same with every call timed, ``backward`` whole backward passes. ``calls`` has the whole time of each
    call, ``own`` that without the calls in it, and ``least`` the least of these in any repeat, also of those that time
    operations; regions are part of all, and have their own times in ``regions``. ``ops`` has the operations of each
    call in the order in which they ran. ``spans`` are the calls and regions of the repeat that took the median time.
    ``elsewhere`` counts calls in other threads, which are not timed. ``device_use`` are samples of the
    accelerator's utilisation in %, and ``no_device_use`` the reason where there are none. ``error`` is the exception
    that ended the runs, in a line; ``missing`` the reason why nothing could be timed.
    """

    plain: list[int] = field(default_factory=list)
    processor: list[int] = field(default_factory=list)
    watched: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    calls: dict[CallKey, list[int]] = field(default_factory=dict)
    own: dict[CallKey, list[int]] = field(default_factory=dict)
    least: dict[CallKey, int] = field(default_factory=dict)
    regions: dict[CallKey, RegionTiming] = field(default_factory=dict)
    ops: dict[CallKey, list[OpTiming]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    elsewhere: int = 0
    device_use: list[float] = field(default_factory=list)
    no_device_use: str = ""
    error: str = ""
    missing: str = ""


@brief
@dataclass(frozen=True, slots=True)
class MachinePeak:
    """The largest rates measured on a machine: operations of a matrix product, bytes of a copy, each per second."""

    flops: float
    bytes: float
    dtype: str
    device: str
    threads: int
