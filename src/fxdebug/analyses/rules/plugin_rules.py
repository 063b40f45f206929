"""The findings of plug-ins' rules as a report, for ``check``."""

from __future__ import annotations

from typing import Any

from fxdebug.analyses.rules.table import PLUGINS
from fxdebug.data.findings import not_looked_at
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.plugins.installed import RULES, findings_of_plugins, plugins


def has_plugin_rules() -> bool:
    """Is there a rule of a plug-in, also one that does not work?"""
    return bool(plugins(RULES))


def plugin_report(trace: TraceData) -> ReportData[Any]:
    """Return what the rules of plug-ins find in a run, and a finding for each that does not work."""
    findings, notes = findings_of_plugins(trace)
    gaps = [not_looked_at(PLUGINS, trace.model, PLUGINS, note.what) for note in notes]
    return ReportData(PLUGINS, trace.model, (), findings=(*findings, *gaps), notes=tuple(notes))
