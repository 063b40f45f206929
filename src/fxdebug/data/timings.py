"""Times of repeated runs, per call and operation: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

CallKey: TypeAlias = tuple[str, int]  # path of the module, number of the call


@dataclass(slots=True)
class OpTiming:
    """The times of one operation in every repeat, in nanoseconds; ``backward`` is empty without a loss."""

    name: str
    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)


class Span(NamedTuple):
    """One call in time, in nanoseconds since the first began."""

    path: str
    number: int
    begin: int
    end: int
    depth: int


@dataclass(slots=True)
class Timings:
    """Nanoseconds of every repeat, in the order of the repeats.

    ``plain`` are whole runs that nothing watched, ``watched`` the same with every call timed, ``backward`` whole
    backward passes. ``calls`` has the whole time of each call, ``own`` that without the calls in it. ``ops`` has the
    operations of each call in the order in which they ran. ``spans`` are the calls of the last repeat. ``elsewhere``
    counts calls in other threads, which are not timed.
    """

    plain: list[int] = field(default_factory=list)
    watched: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    calls: dict[CallKey, list[int]] = field(default_factory=dict)
    own: dict[CallKey, list[int]] = field(default_factory=dict)
    ops: dict[CallKey, list[OpTiming]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class MachinePeak:
    """The largest rates measured on a machine: operations of a matrix product, bytes of a copy, each per second."""

    flops: float
    bytes: float
    dtype: str
    device: str
    threads: int
