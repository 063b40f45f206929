"""Timelines for Perfetto, Chrome and speedscope."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="timelines",
    exporters={
        ("trace", "perfetto"): "fxdebug.features.timelines.perfetto:write_perfetto",
        ("trace", ".pftrace"): "fxdebug.features.timelines.perfetto:write_perfetto",
        ("trace", "chrome-trace"): "fxdebug.features.timelines.chrome_trace:write_chrome_trace",
        ("trace", ".trace.json"): "fxdebug.features.timelines.chrome_trace:write_chrome_trace",
        ("trace", "speedscope"): "fxdebug.features.timelines.speedscope:write_speedscope",
        ("trace", ".speedscope.json"): "fxdebug.features.timelines.speedscope:write_speedscope",
        ("report", "perfetto"): "fxdebug.features.timelines.perfetto:write_report",
        ("report", ".pftrace"): "fxdebug.features.timelines.perfetto:write_report",
        ("report", "chrome-trace"): "fxdebug.features.timelines.chrome_trace:write_report",
        ("report", ".trace.json"): "fxdebug.features.timelines.chrome_trace:write_report",
        ("report", "speedscope"): "fxdebug.features.timelines.speedscope:write_report",
        ("report", ".speedscope.json"): "fxdebug.features.timelines.speedscope:write_report",
        ("report", ".timeline"): "fxdebug.features.timelines.every_format:write_timeline",
    },
)
