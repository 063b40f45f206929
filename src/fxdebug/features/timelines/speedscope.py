"""A run in time for speedscope: flame graphs of its calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.features.timelines.timeline import Lane, lanes_of_report, lanes_of_traces, opened_and_closed
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable_json


def write_speedscope(trace: TraceData, path: Path, *, ranks: Sequence[TraceData] = ()) -> Path:
    """Write the calls of a run, and operations where a profile timed them; ``ranks``: the runs of further ranks."""
    return _write(lanes_of_traces([trace, *ranks]), path)


def write_report(report: ReportData[Any], path: Path) -> Path:
    """Write the calls of a profile as they were in time. Raises ``UsageError`` for a report without times."""
    return _write(lanes_of_report(report), path)


def _write(lanes: Sequence[Lane], path: Path) -> Path:
    return write_text(path, printable_json(json.dumps(speedscope(lanes), ensure_ascii=False, separators=(",", ":"))))


def speedscope(lanes: Sequence[Lane]) -> dict[str, Any]:
    """Return a profile for each track in nanoseconds (https://www.speedscope.app/file-format-schema.json)."""
    frames: dict[str, int] = {}
    profiles = []
    for lane in lanes:
        for number, track in enumerate(lane.tracks):
            own = [one for one in lane.slices if one.track == number]
            name = lane.name if number == 0 else f"{lane.name}: {track}"
            events = [
                {"type": "O", "frame": frames.setdefault(one.name, len(frames)), "at": one.begin}
                if opens
                else {"type": "C", "frame": frames[one.name], "at": one.end}
                for opens, one in opened_and_closed(own)
            ]
            if own:
                span = {"startValue": own[0].begin, "endValue": max(one.end for one in own)}
                profiles.append({"type": "evented", "name": name, "unit": "nanoseconds", **span, "events": events})
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
        "exporter": "fxdebug",
    }
