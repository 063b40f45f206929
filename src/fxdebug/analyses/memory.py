"""The memory of a run: what each call holds, the peak and what was alive then, and what steps leave behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fxdebug.data.allocations import CATEGORIES, Allocation, MemoryRecord, alive_at, by_category, timeline
from fxdebug.data.calls import Note
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import CALL, Unit, quantity, register
from fxdebug.data.report import Cell, Column, ReportData

PEAK = register("memory.peak", "B", "most bytes alive at once while the call ran, above those at its begin", [CALL])
ACTIVATIONS = register("memory.activations", "B", "bytes that the call itself made and passed on", [CALL], adds=True)
SAVED = register("memory.saved_for_backward", "B", "bytes it made that live until the backward", [CALL], adds=True)
TEMPORARY = register("memory.temporary", "B", "bytes it made and freed before it returned", [CALL], adds=True)

SHOWN_AT_PEAK = 12  # allocations that the report names


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The memory of one call, in bytes; all but ``peak`` are of the call itself, without calls in it.

    ``parameters`` are those registered on the module itself. ``activations`` were passed on and freed in the forward,
    ``saved`` lived until the backward, ``outputs`` were returned by the run, ``temporary`` were freed before the call
    returned. ``peak`` is the most that was alive at once while the call ran, above what was alive when it began.
    """

    call: str
    type: str
    parameters: int
    activations: int
    saved: int
    outputs: int
    temporary: int
    peak: int


@dataclass(frozen=True, slots=True)
class AliveRow:
    """Memory that was alive at the peak: allocations of one place and operation together."""

    place: str
    op: str
    category: str
    count: int
    bytes: int
    source: str


COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("parameters", "parameters", "B", "registered on the module itself", adds=True),
    Column("activations", "activations", "B", "made here, passed on, freed in the forward", adds=True),
    Column("saved", "saved", "B", "made here, alive until the backward", adds=True),
    Column("outputs", "outputs", "B", "made here and returned by the run", adds=True),
    Column("temporary", "temporary", "B", "made here, freed before the call returned", adds=True),
    Column("peak", "peak", "B", "most alive at once in the call, above its begin"),
)
ALIVE_COLUMNS = (
    Column("place", "alive at the peak"),
    Column("op", "operation"),
    Column("category", "is"),
    Column("count", "count", adds=True),
    Column("bytes", "bytes", "B", adds=True),
    Column("source", "line", shown=False),
)


def memory_report(
    record: MemoryRecord,
    model: str,
    types: Mapping[str, str],
    settings: Mapping[str, Cell],
    estimate: Mapping[str, tuple[Cell, Unit]] | None = None,
) -> ReportData[MemoryRow]:
    """Return the memory of a run per call, the peak with what was alive then, and leaks over several steps.

    ``types`` are the classes of the model's modules by path; ``estimate`` are totals to add.
    """
    first = [allocation for allocation in record.allocations if allocation.step == 0]
    alive = timeline(record.allocations, record.events)
    peak = max(alive, default=0)
    at = alive.index(peak) if alive else 0
    rows = _rows(record, first, model, types, alive)
    totals: dict[str, tuple[Cell, Unit]] = {"peak": (peak, "B"), "at the peak": (_moment(record, at, model), "")}
    totals |= {f"  {category}": (size, "B") for category, size in by_category(alive_at(record.allocations, at)).items()}
    totals["alive at the end"] = (alive[-1] if alive else 0, "B")
    totals |= dict(estimate or {})
    leaks = list(_leaks(record, settings))
    notes = [Note(f"the model raised: this is its memory until then ({record.error})")] if record.error else []
    notes.append(Note("fragmentation: n/a, the allocator of the CPU has no snapshot"))
    return ReportData(
        analysis="memory",
        subject=model,
        columns=COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: -(row.activations + row.saved + row.outputs + row.temporary))),
        totals=totals,
        findings=tuple(leaks),
        notes=tuple(notes),
        settings=settings,
        series=_series(record),
        marks=tuple(record.marks),
        measures={
            PEAK.name: {row.call: row.peak for row in rows},
            ACTIVATIONS.name: {row.call: row.activations for row in rows},
            SAVED.name: {row.call: row.saved for row in rows},
            TEMPORARY.name: {row.call: row.temporary for row in rows},
        },
        parts=(
            ReportData(
                "memory", model, ALIVE_COLUMNS, _alive_rows(record, at, model), settings={"by": "what was alive"}
            ),
        ),
    )


def _rows(
    record: MemoryRecord, first: Sequence[Allocation], model: str, types: Mapping[str, str], alive: Sequence[int]
) -> list[MemoryRow]:
    own: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    parameters: defaultdict[str, int] = defaultdict(int)
    for allocation in first:
        if allocation.category in ("parameters", "buffers"):
            parameters[allocation.name.rpartition(".")[0]] += allocation.bytes
        elif allocation.call is not None:
            own[allocation.call][allocation.category] += allocation.bytes
    rows = []
    for position, span in enumerate(record.calls):
        if span.step:
            break
        begin = alive[span.begin - 1] if span.begin else 0
        during = alive[span.begin : span.end] or [begin]
        sizes = own[position]
        rows.append(
            MemoryRow(
                call=f"{span.path or model}#{span.number}",
                type=types.get(span.path, ""),
                parameters=parameters[span.path] if span.number == 0 else 0,
                activations=sizes["activations"],
                saved=sizes["saved for backward"],
                outputs=sizes["outputs"],
                temporary=sizes["temporary"],
                peak=max(0, max(during) - begin),
            )
        )
    return rows


def _series(record: MemoryRecord) -> dict[str, tuple[float, ...]]:
    """Return the bytes alive after each event, by category."""
    series: dict[str, tuple[float, ...]] = {}
    for category in CATEGORIES:
        own = [allocation for allocation in record.allocations if allocation.category == category]
        if own:
            series[category] = tuple(map(float, timeline(own, record.events)))
    return series


def _moment(record: MemoryRecord, event: int, model: str) -> str:
    """Return where the run was at an event: the innermost call of the forward, or the backward."""
    label = next((label for at, label in reversed(record.marks) if at <= event), "before the run")
    inside = [span for span in record.calls if span.begin <= event < span.end]
    if inside and label == "forward":
        return f"in {inside[-1].path or model}"
    return f"in the {label}" if label in ("forward", "backward") else f"at the {label}"


def _alive_rows(record: MemoryRecord, at: int, model: str) -> tuple[AliveRow, ...]:
    groups: defaultdict[tuple[str, str, str, str], list[Allocation]] = defaultdict(list)
    for allocation in alive_at(record.allocations, at):
        place = allocation.name.rpartition(".")[0] if allocation.name else allocation.path
        line = (allocation.source or "").rpartition("/")[2]
        groups[place or model, allocation.op or "", allocation.category, line].append(allocation)
    rows = [
        AliveRow(place, op, category, len(group), sum(allocation.bytes for allocation in group), line)
        for (place, op, category, line), group in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _leaks(record: MemoryRecord, settings: Mapping[str, Cell]) -> Iterator[Finding]:
    """Yield a finding for each place whose memory outlives its step, in every step after the first.

    One step may fill a cache; memory that stays after each further step is a leak.
    """
    steps = settings.get("steps")
    if not isinstance(steps, int) or steps < 2 or record.error:
        return
    groups: defaultdict[tuple[str, str, str], list[Allocation]] = defaultdict(list)
    lasting = ("parameters", "buffers", "inputs", "gradients")
    for allocation in record.allocations:
        if allocation.freed is None and allocation.category not in lasting and allocation.step > 0:
            groups[allocation.path, allocation.op, allocation.source or ""].append(allocation)
    for (_, op, source), group in groups.items():
        path = next((a.left for a in group if a.left is not None), group[0].path)
        per_step = {allocation.step for allocation in group}
        if len(per_step) < steps - 1:
            continue
        growth = sum(allocation.bytes for allocation in group) / len(per_step)
        holder = next((record.held[a.number] for a in group if record.held.get(a.number)), "")
        yield Finding(
            rule="leak",
            severity=WARNING,
            path=path,
            call=f"{path}#0",
            op=op,
            what=f"{quantity(growth, 'B')} that {op or 'it'} made here stay after every step"
            + (f"; {holder} refers to them" if holder else "; a reference in autograd's graph or in C++ keeps them"),
            source=source or None,
            measured=growth,
            threshold=0.0,
            unit="B",
            advice="Keep a detached copy or a number, or clear the container after each step.",
        )
