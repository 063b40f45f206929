"""A run in time as JSON: Chrome's trace format, which Perfetto reads too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.features.timelines.timeline import Lane, lanes_of_report, lanes_of_traces
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable_json


def write_chrome_trace(trace: TraceData, path: Path, *, ranks: Sequence[TraceData] = ()) -> Path:
    """Write the calls of a run, and operations where a profile timed them; ``ranks``: the runs of further ranks."""
    return _write(lanes_of_traces([trace, *ranks]), path)


def write_report(report: ReportData[Any], path: Path) -> Path:
    """Write the calls of a profile as they were in time. Raises ``UsageError`` for a report without times."""
    return _write(lanes_of_report(report), path)


def _write(lanes: Sequence[Lane], path: Path) -> Path:
    return write_text(path, printable_json(json.dumps(chrome_trace(lanes), ensure_ascii=False, separators=(",", ":"))))


def chrome_trace(lanes: Sequence[Lane]) -> dict[str, Any]:
    """Return complete events (``ph: X``), in microseconds since the run began.

    The format: "Trace Event Format", Google 2016.
    """
    events = [event for lane in lanes for event in _events(lane)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(lane: Lane) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": lane.id, "tid": 1, "args": {"name": lane.name}}
    for track, name in enumerate(lane.tracks[1:], start=2):
        yield {"ph": "M", "name": "thread_name", "pid": lane.id, "tid": track, "args": {"name": name}}
    for one in lane.slices:
        yield {
            "ph": "X", "cat": one.kind, "pid": lane.id, "tid": one.track + 1, "name": one.name,
            "args": dict(one.facts), "ts": one.begin / 1e3, "dur": (one.end - one.begin) / 1e3,
        }  # fmt: skip
    for counter in lane.counters:
        for time, number in counter.points:
            yield {
                "ph": "C", "pid": lane.id, "name": f"{counter.name} [{counter.unit}]", "ts": time / 1e3,
                "args": {counter.name: number},
            }  # fmt: skip
    for number, (source, target) in enumerate(lane.flows):
        for kind, place in (("s", source), ("f", target)):
            one = lane.slices[place]
            yield {
                "ph": kind, "bp": "e", "cat": "data", "name": "data", "id": lane.id << 32 | number, "pid": lane.id,
                "tid": one.track + 1, "ts": one.begin / 1e3,
            }  # fmt: skip
    for time, text in lane.marks:
        yield {"ph": "i", "s": "p", "pid": lane.id, "tid": 1, "name": text, "ts": time / 1e3}
