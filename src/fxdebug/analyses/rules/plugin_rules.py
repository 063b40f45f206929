"""The findings of plug-ins' rules as a report, for ``check``."""

from __future__ import annotations

from typing import Any

from fxdebug.analyses.rules.table import PLUGINS
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.plugins.installed import RULES, findings_of_plugins, plugins


def has_plugin_rules() -> bool:
    """Is there a rule of a plug-in, also one that does not work?"""
    return bool(plugins(RULES))


def plugin_report(trace: TraceData) -> ReportData[Any]:
    """Return what the rules of plug-ins find in a run; its notes name those that do not work."""
    findings, notes = findings_of_plugins(trace)
    return ReportData(PLUGINS, trace.model, (), findings=tuple(findings), notes=tuple(notes))
