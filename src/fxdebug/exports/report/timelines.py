"""The calls of a profiled run in time: Chrome's trace format (chrome://tracing, Perfetto) and speedscope's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.errors import UsageError
from fxdebug.files.write_file import write_text


def write_timeline(report: ReportData[Any], path: Path) -> Path:
    """Write the calls of the last repeat: as speedscope's file for ``*.speedscope.json``, as Chrome's trace otherwise.

    Raises ``UsageError`` for a report without times.
    """
    if not report.spans:
        raise UsageError(f"{report.analysis} has no times of calls: use fxdebug.profile(model, inputs)")
    data = speedscope(report) if path.name.endswith(".speedscope.json") else chrome_trace(report)
    return write_text(path, json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def chrome_trace(report: ReportData[Any]) -> dict[str, Any]:
    """Return complete events (``ph: X``), in microseconds since the run began.

    The format: "Trace Event Format", Google 2016, which Perfetto reads too.
    """
    own = report.measures.get("time.self", {})
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": report.subject}},
    ]
    for span in report.spans:
        id = f"{span.path or report.subject}#{span.number}"
        args = {"call": id} | ({"mean self time, ms": own[id] * 1e3} if id in own else {})
        events.append(
            {
                "ph": "X", "cat": "call", "pid": 1, "tid": 1, "name": span.path or report.subject, "args": args,
                "ts": span.begin / 1e3, "dur": (span.end - span.begin) / 1e3,
            }
        )  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def speedscope(report: ReportData[Any]) -> dict[str, Any]:
    """Return an evented profile in nanoseconds (https://www.speedscope.app/file-format-schema.json)."""
    frames: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    open_spans: list[tuple[int, int, int]] = []  # depth, frame, end

    def close(until: int) -> None:
        while open_spans and open_spans[-1][0] >= until:
            _, frame, end = open_spans.pop()
            events.append({"type": "C", "frame": frame, "at": end})

    for span in report.spans:
        close(span.depth)
        frame = frames.setdefault(span.path or report.subject, len(frames))
        events.append({"type": "O", "frame": frame, "at": span.begin})
        open_spans.append((span.depth, frame, span.end))
    close(0)
    profile = {
        "type": "evented",
        "name": report.subject,
        "unit": "nanoseconds",
        "startValue": report.spans[0].begin,
        "endValue": max(span.end for span in report.spans),
        "events": events,
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [profile],
        "exporter": "fxdebug",
    }
