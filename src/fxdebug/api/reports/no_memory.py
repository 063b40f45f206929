"""The note on an exception that ended a run for want of memory: where, and what the run had made until then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from fxdebug.analyses.cost.no_memory import HOW_TO_SEE, NoMemory, no_memory
from fxdebug.analyses.cost.reached_by_backward import steps_of
from fxdebug.data.calls import Parameter
from fxdebug.data.measures import quantity
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.operators.dtypes import bytes_of


def note_on_memory(trace: TraceData, lacking: NoMemory) -> str:
    """Return what a partial run knows about memory that there was not."""
    asked = "" if lacking.bytes is None else f" for {quantity(lacking.bytes, 'B')}"
    failed = [call for call in trace.calls if call.error is not None]
    where = f" in {failed[-1].path or trace.model} ({failed[-1].type})" if failed else ""
    line = f", {lacking.line.rpartition('/')[2]}" if lacking.line else ""
    in_use = "" if lacking.in_use is None else f", beside {quantity(lacking.in_use, 'B')} in use"
    made = _made(trace)
    text = f"fxdebug: no memory{asked}{where}{line}{in_use}. Parameters take {_size_of(trace.parameters)}, inputs "
    text += f"{_size_of(tuple(trace.root.inputs))}, and operations had made "
    text += quantity(sum(made.values()), "B") if made else "nothing that was recorded"
    if made:
        (op, source), size = max(made.items(), key=lambda pair: pair[1])
        at = f" ({source.rpartition('/')[2]})" if source else ""
        text += f" until then, with what was freed again; the most is that of {op}{at}: {quantity(size, 'B')}"
    return f"{text}. {HOW_TO_SEE}."


def _made(trace: TraceData) -> dict[tuple[str, str], int]:
    """Return the bytes of new memory that operations made, by operation and line."""
    known = {value.storage for value in (*trace.parameters, *trace.root.inputs)} - {None}
    made: defaultdict[tuple[str, str], int] = defaultdict(int)
    for call in trace.calls:
        sources: dict[str, str | None] = {}
        if call.graph is not None and call.body is not None:
            sources = dict(zip([op.name for op in call.graph.ops], call.body.sources))
        for step in steps_of(call) or ():
            for _, value in leaves(step.result):
                size = bytes_of(value.dtype, value.shape)
                if value.storage is not None and value.storage not in known and size:
                    known.add(value.storage)
                    made[step.op.op, sources.get(step.op.name) or call.source or ""] += size
    return made


def _size_of(values: Iterable[Value | Parameter]) -> str:
    return quantity(sum(bytes_of(value.dtype, value.shape) or 0 for value in values), "B")


def note_if_no_memory(error: Exception, run: Callable[[], TraceData]) -> None:
    """Note on an exception for want of memory what a traced run knows of it; ``run`` makes one, in less memory.

    What that run raises is the same want of memory, earlier: then its note is the one.
    """
    lacking = no_memory(error)
    if lacking is None or hasattr(error, "__notes__"):
        return
    try:
        notes = [note_on_memory(run(), lacking)]
    except Exception as again:
        notes = getattr(again, "__notes__", [])
    for note in notes:
        error.add_note(note)
