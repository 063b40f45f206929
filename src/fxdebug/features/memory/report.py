"""The memory of a run: what each call holds, the peak and what was alive then, and what steps leave behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fxdebug.data.calls import Note
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import CALL, Unit, quantity, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.features.memory.fragmentation import fragmentation
from fxdebug.features.memory.out_of_memory import out_of_memory
from fxdebug.features.memory.record import CATEGORIES, Allocation, Fit, MemoryRecord, alive_at, by_category, timeline

PEAK = register("memory.peak", "B", "most bytes alive at once while the call ran, above those at its begin", [CALL])
ACTIVATIONS = register("memory.activations", "B", "bytes it made and passed on", [CALL], adds=True, own=True)
SAVED = register("memory.saved_for_backward", "B", "bytes it made that the backward needs", [CALL], adds=True, own=True)
TEMPORARY = register("memory.temporary", "B", "bytes it made and freed before it returned", [CALL], adds=True, own=True)

FRAGMENTED = 25.0  # % of what the allocator has reserved: from here on it is a finding


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


@dataclass(frozen=True, slots=True)
class LabelRow:
    """The bytes that were alive when ``fxdebug.snapshot(label)`` was called, and the most since the label before."""

    label: str
    alive: int
    peak: int


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
FIT_COLUMNS = (
    Column("setting", "would it fit?"),
    Column("peak", "peak", "B", "most bytes alive at once"),
    Column("fits", "fits"),
    Column("how", "how"),
)
LABEL_COLUMNS = (
    Column("label", "label"),
    Column("alive", "alive", "B", "bytes alive at the label"),
    Column("peak", "peak", "B", "most alive since the label before"),
)


RANKED_BY = ("activations", "saved", "outputs", "temporary")  # all that a call makes


def memory_report(
    record: MemoryRecord,
    model: str,
    types: Mapping[str, str],
    settings: Mapping[str, Cell],
    estimate: Mapping[str, tuple[Cell, Unit]] | None = None,
    notes: Sequence[Note] = (),
    fits: Sequence[Fit] = (),
) -> ReportData[MemoryRow]:
    """Return the memory of a run per call, the peak with what was alive then, and leaks over several steps.

    ``types`` are the classes of the model's modules by path; ``estimate`` are totals to add, and ``notes`` are
    notes on them. ``fits`` are settings for a run that there was no memory for.
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
    findings = [*out_of_memory(record, model, fits), *_leaks(record, model, settings), *_fragmented(record, model)]
    told = [Note(f"the model raised: this is its memory until then ({record.error})")] if record.error else []
    if record.unseen:
        told.append(Note(f"the memory of {record.unseen} results could not be followed"))
    told += [Note(text) for text in record.notes]
    if record.segments is None:
        told.append(Note(f"fragmentation: n/a, the allocator of the device {settings.get('device')} shows no segments"))
    else:
        pieces = fragmentation(record.segments)
        totals["reserved by the allocator"] = (pieces.reserved, "B")
        totals["  free, between used blocks"] = (100 * pieces.share, "%")
        totals["  free, outside of the largest block"] = (100 * pieces.scattered, "%")
    return ReportData(
        analysis="memory",
        subject=model,
        answer=_answer(record, at, peak, model, findings),
        columns=COLUMNS,
        rows=tuple(sorted(rows, key=lambda row: -sum(getattr(row, field) for field in RANKED_BY))),
        ranked_by=RANKED_BY,
        totals=totals,
        findings=tuple(findings),
        notes=(*told, *notes),
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
                "memory",
                model,
                ALIVE_COLUMNS,
                _alive_rows(record, at, model),
                settings={"by": "what was alive"},
                ranked_by=("bytes",),
            ),
            ReportData("memory", model, LABEL_COLUMNS, _label_rows(record, alive), settings={"by": "label"}),
            *([ReportData("memory", model, FIT_COLUMNS, tuple(fits), settings={"by": "setting"})] if fits else ()),
        ),
    )


def _answer(record: MemoryRecord, at: int, peak: int, model: str, findings: Sequence[Finding]) -> str:
    """Return the peak, where it was reached, and what most of it was; first of all what went wrong."""
    if findings:
        return f"{findings[0].what}."
    kinds = by_category(alive_at(record.allocations, at))
    if not kinds or not peak:
        return ""
    most = max(kinds, key=lambda kind: kinds[kind])
    share = quantity(100 * kinds[most] / peak, "%")
    return f"The peak, {quantity(peak, 'B')}, is reached {_moment(record, at, model)}; {share} of it is {most}."


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
    marks = [mark for mark in record.marks if mark not in record.labels]
    label = next((label for at, label in reversed(marks) if at <= event), "before the run")
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


def _label_rows(record: MemoryRecord, alive: Sequence[int]) -> tuple[LabelRow, ...]:
    rows, since = [], 0
    for event, label in record.labels:
        rows.append(LabelRow(label, alive[event - 1] if event else 0, max(alive[since:event], default=0)))
        since = event
    return tuple(rows)


def _fragmented(record: MemoryRecord, model: str) -> Iterator[Finding]:
    if record.segments is None:
        return
    pieces = fragmentation(record.segments)
    if 100 * pieces.share > FRAGMENTED:
        yield Finding(
            rule="fragmentation",
            severity=WARNING,
            path="",
            call=f"{model}#0",
            op=model,
            what=f"of the {quantity(pieces.reserved, 'B')} that the allocator has reserved "
            f"{quantity(pieces.split, 'B')} are free between blocks in use, and cannot be given back",
            measured=100 * pieces.share,
            threshold=FRAGMENTED,
            unit="%",
            advice="Would PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True help, or tensors of equal sizes?",
        )


def _leaks(record: MemoryRecord, model: str, settings: Mapping[str, Cell]) -> Iterator[Finding]:
    """Yield a finding for each place whose memory outlives its step, in every step after the first.

    One step may fill a cache, and the last one's result may be kept; what stays after each further step is a leak.
    """
    steps = settings.get("steps")
    if not isinstance(steps, int) or steps < 3 or record.error:
        return
    by_graph = "a reference in autograd's graph or in C++ keeps them"
    if record.graph_holder:
        by_graph = f"{record.graph_holder} keeps autograd's graph of every step, and so them"
    count = 0
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
        count += 1
        growth = sum(allocation.bytes for allocation in group) / len(per_step)
        holder = next((record.held[a.number] for a in group if record.held.get(a.number)), "")
        yield Finding(
            rule="leak",
            severity=WARNING,
            path=path,
            call=f"{path or model}#0",
            op=op,
            what=f"{quantity(growth, 'B')} that {op or 'it'} made here stay after every step; "
            + (f"{holder} refers to them" if holder else by_graph),
            source=source or None,
            measured=growth,
            threshold=0.0,
            unit="B",
            advice="Could it keep a detached copy or a number, or be cleared after each step?",
        )
    nodes = record.graphs[1:]
    if not count and nodes and all(nodes):
        yield Finding(
            rule="leak",
            severity=WARNING,
            path="",
            call=f"{model}#0",
            op=model,
            what=f"autograd's graph of every step stays, {sum(nodes) / len(nodes):.0f} nodes a step; "
            f"{record.graph_holder or 'a reference in C++'} keeps it",
            measured=sum(nodes) / len(nodes),
            threshold=0.0,
            advice="Could numbers be added up, not tensors with a gradient: total += loss.item(), or loss.detach()?",
        )
