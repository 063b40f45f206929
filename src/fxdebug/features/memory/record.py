"""Memory of a run, allocation by allocation: plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from fxdebug.brief import brief

Category: TypeAlias = Literal[
    "parameters", "buffers", "inputs", "activations", "temporary", "saved for backward", "gradients", "outputs"
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
Phase: TypeAlias = Literal["before", "forward", "backward"]


@brief
@dataclass(slots=True)
class Allocation:
    """The memory of one storage: when it was first seen and when it was freed, in events of the run.

    ``bytes`` is the size of the storage. ``born`` and ``freed`` count events; ``freed`` is ``None`` for memory that was
    alive when the last step ended. ``call`` is the position of the call that made it in the step's calls, and ``path``
    its module's path; ``left`` is the path of the outermost call that returned it. ``op`` is the operation of ATen;
    ``source`` the user's line. ``name`` is that of a parameter, buffer or input.
    """

    number: int
    bytes: int
    born: int
    category: Category
    phase: Phase
    step: int = 0
    freed: int | None = None
    call: int | None = None
    path: str = ""
    left: str | None = None
    op: str = ""
    source: str | None = None
    name: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = "cpu"


@brief
@dataclass(slots=True)
class CallSpan:
    """One call of a step: its path, its number, the call it was made in, and its first and last event."""

    path: str
    number: int
    parent: int | None
    begin: int
    end: int
    step: int = 0


@brief
@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that an allocator has reserved in one piece: its bytes, and its blocks as (bytes, is it in use?)."""

    bytes: int
    blocks: tuple[tuple[int, bool], ...]


@brief
@dataclass(frozen=True, slots=True)
class Refused:
    """Memory that an operation asked for and did not get: the operation of ATen, the module's path and call, the line.

    ``bytes`` is what it asked for, ``None`` where the error does not say; ``alive`` was in use then. ``limit`` is that
    of :func:`fxdebug.memory`, ``None`` where the device itself had no more.
    """

    op: str
    path: str
    call: int | None
    phase: Phase
    source: str | None
    bytes: int | None
    alive: int
    limit: int | None


@brief
@dataclass(slots=True)
class MemoryRecord:
    """Every allocation of the steps of a run, with the calls of the first step.

    ``marks`` are labelled events: ``forward``, ``backward``, ``end`` of a step, and those of the program, which
    ``labels`` has alone (``fxdebug.snapshot``). ``held`` names what still refers to an allocation that a step has left
    behind, by its number. ``unseen`` counts results whose memory could not be followed. ``graphs`` counts the nodes of
    autograd's graph that each step left behind, and ``graph_holder`` names the tensor that keeps them. ``segments`` is
    the state of the allocator when the last forward had returned, or, with a loss, after its backward; ``None`` on
    a device whose allocator shows none. ``refused`` is what there was no memory for, which ended the run. ``notes``
    tell what was not looked at.
    """

    allocations: list[Allocation] = field(default_factory=list)
    calls: list[CallSpan] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    labels: list[tuple[int, str]] = field(default_factory=list)
    held: dict[int, str] = field(default_factory=dict)
    graphs: list[int] = field(default_factory=list)
    graph_holder: str = ""
    segments: tuple[Segment, ...] | None = None
    events: int = 0
    unseen: int = 0
    error: str = ""
    refused: Refused | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fit:
    """A setting and the peak of a run with it, in bytes: was it measured in such a run, or estimated from small ones?

    ``fits`` compares the peak with the memory that there was. ``batch`` is that of a setting that is one.
    """

    setting: str
    peak: int
    fits: bool
    how: str
    batch: int = 0


def timeline(allocations: Sequence[Allocation], events: int) -> list[int]:
    """Return the bytes alive after each event.

    >>> timeline([Allocation(0, 4, 0, "inputs", "before"), Allocation(1, 8, 1, "temporary", "forward", freed=2)], 3)
    [4, 12, 4]
    """
    changes = [0] * (events + 1)
    for allocation in allocations:
        changes[allocation.born] += allocation.bytes
        if allocation.freed is not None:
            changes[allocation.freed] -= allocation.bytes
    alive, total = [], 0
    for change in changes[:events]:
        total += change
        alive.append(total)
    return alive


def alive_at(allocations: Sequence[Allocation], event: int) -> Iterator[Allocation]:
    """Yield the allocations that are alive after an event."""
    for allocation in allocations:
        if allocation.born <= event and (allocation.freed is None or allocation.freed > event):
            yield allocation


def by_category(allocations: Iterator[Allocation]) -> Mapping[Category, int]:
    """Return the bytes of some allocations by category, the categories in their usual order."""
    sizes = dict.fromkeys(CATEGORIES, 0)
    for allocation in allocations:
        sizes[allocation.category] += allocation.bytes
    return {category: size for category, size in sizes.items() if size}
