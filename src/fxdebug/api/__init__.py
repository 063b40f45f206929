"""The public functions: the only room that joins capture, store, comparison and exports.

Names are imported when they are first used. So ``import fxdebug`` loads neither torch nor networkx nor rich, and the
modules of this room import what they need at their tops. No module in here may have the name of a public function:
importing the module would hide the function.
"""

from __future__ import annotations

import importlib
import random
from typing import TYPE_CHECKING

from fxdebug.data.values import VALUES

if TYPE_CHECKING:
    from fxdebug.analyses.rules.settings import fails
    from fxdebug.api.changed.edit_run import ablate, edit, edit_of, patch
    from fxdebug.api.changed.pause_run import paused_run
    from fxdebug.api.changed.replay_call import replay
    from fxdebug.api.check_run import check, project_settings
    from fxdebug.api.compare_live import compare_models
    from fxdebug.api.compare_runs import compare, run_to_compare
    from fxdebug.api.comparison import Comparison
    from fxdebug.api.exported_folders import export_ranks, export_training, shows_ranks
    from fxdebug.api.files import load, save_golden, save_measures
    from fxdebug.api.onnx_export import export_onnx
    from fxdebug.api.page.text import page_of, page_of_training
    from fxdebug.api.reports.activation_statistics import ActivationReport, activations, heatmap
    from fxdebug.api.reports.attention_maps import AttentionReport, attention
    from fxdebug.api.reports.cost import flops, last_failed_report, mean_of_output, memory, profile, summary
    from fxdebug.api.reports.gradient_flow import gradients, loss_or_mean
    from fxdebug.api.reports.model_findings import GivenModel, findings_of_model
    from fxdebug.api.reports.plugin_analyses import analyse
    from fxdebug.api.reports.report import Report
    from fxdebug.api.reports.weight_statistics import weights
    from fxdebug.api.run_model import fx_debug, last_failed
    from fxdebug.api.shadow_run import shadow
    from fxdebug.api.trace import Trace
    from fxdebug.api.traced_forwards import trace_forwards
    from fxdebug.api.transformers_context import model_addition_debugger_context
    from fxdebug.api.watch_training import FxDebugWarning, Watch, watch, watched_training
    from fxdebug.capture.hooks.regions import region, snapshot
    from fxdebug.capture.pausing.edits import constant_like
    from fxdebug.exports.columns import require_columns
    from fxdebug.exports.measures import measures_csv, measures_json, measures_text
    from fxdebug.exports.plugins import plugins_csv, plugins_json, plugins_text
    from fxdebug.exports.programs.viewers import VIEWERS, viewer_command
    from fxdebug.exports.rules import rules_csv, rules_json, rules_text
    from fxdebug.exports.text import listing
    from fxdebug.stats.histogram import histogram
else:
    _MODULES = {
        "ActivationReport": "fxdebug.api.reports.activation_statistics",
        "AttentionReport": "fxdebug.api.reports.attention_maps",
        "Comparison": "fxdebug.api.comparison",
        "Report": "fxdebug.api.reports.report",
        "Trace": "fxdebug.api.trace",
        "activations": "fxdebug.api.reports.activation_statistics",
        "analyse": "fxdebug.api.reports.plugin_analyses",
        "attention": "fxdebug.api.reports.attention_maps",
        "check": "fxdebug.api.check_run",
        "compare": "fxdebug.api.compare_runs",
        "ablate": "fxdebug.api.changed.edit_run",
        "constant_like": "fxdebug.capture.pausing.edits",
        "edit_of": "fxdebug.api.changed.edit_run",
        "paused_run": "fxdebug.api.changed.pause_run",
        "replay": "fxdebug.api.changed.replay_call",
        "edit": "fxdebug.api.changed.edit_run",
        "patch": "fxdebug.api.changed.edit_run",
        "compare_models": "fxdebug.api.compare_live",
        "GivenModel": "fxdebug.api.reports.model_findings",
        "fails": "fxdebug.analyses.rules.settings",
        "export_onnx": "fxdebug.api.onnx_export",
        "export_ranks": "fxdebug.api.exported_folders",
        "shows_ranks": "fxdebug.api.exported_folders",
        "export_training": "fxdebug.api.exported_folders",
        "findings_of_model": "fxdebug.api.reports.model_findings",
        "flops": "fxdebug.api.reports.cost",
        "fx_debug": "fxdebug.api.run_model",
        "gradients": "fxdebug.api.reports.gradient_flow",
        "heatmap": "fxdebug.api.reports.activation_statistics",
        "histogram": "fxdebug.stats.histogram",
        "last_failed": "fxdebug.api.run_model",
        "last_failed_report": "fxdebug.api.reports.cost",
        "listing": "fxdebug.exports.text",
        "run_to_compare": "fxdebug.api.compare_runs",
        "load": "fxdebug.api.files",
        "loss_or_mean": "fxdebug.api.reports.gradient_flow",
        "mean_of_output": "fxdebug.api.reports.cost",
        "measures_csv": "fxdebug.exports.measures",
        "measures_json": "fxdebug.exports.measures",
        "measures_text": "fxdebug.exports.measures",
        "memory": "fxdebug.api.reports.cost",
        "model_addition_debugger_context": "fxdebug.api.transformers_context",
        "plugins_csv": "fxdebug.exports.plugins",
        "plugins_json": "fxdebug.exports.plugins",
        "plugins_text": "fxdebug.exports.plugins",
        "profile": "fxdebug.api.reports.cost",
        "page_of": "fxdebug.api.page.text",
        "page_of_training": "fxdebug.api.page.text",
        "project_settings": "fxdebug.api.check_run",
        "region": "fxdebug.capture.hooks.regions",
        "require_columns": "fxdebug.exports.columns",
        "rules_csv": "fxdebug.exports.rules",
        "rules_json": "fxdebug.exports.rules",
        "rules_text": "fxdebug.exports.rules",
        "save_golden": "fxdebug.api.files",
        "save_measures": "fxdebug.api.files",
        "snapshot": "fxdebug.capture.hooks.regions",
        "summary": "fxdebug.api.reports.cost",
        "shadow": "fxdebug.api.shadow_run",
        "trace_forwards": "fxdebug.api.traced_forwards",
        "FxDebugWarning": "fxdebug.api.watch_training",
        "VIEWERS": "fxdebug.exports.programs.viewers",
        "viewer_command": "fxdebug.exports.programs.viewers",
        "Watch": "fxdebug.api.watch_training",
        "watch": "fxdebug.api.watch_training",
        "watched_training": "fxdebug.api.watch_training",
        "weights": "fxdebug.api.reports.weight_statistics",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        state = random.getstate()  # rich draws a number when it is imported: the program draws the same as ever
        try:
            value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
        finally:
            random.setstate(state)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})


__all__ = [
    "VALUES",
    "VIEWERS",
    "ActivationReport",
    "AttentionReport",
    "Comparison",
    "FxDebugWarning",
    "GivenModel",
    "Report",
    "Trace",
    "Watch",
    "ablate",
    "activations",
    "analyse",
    "attention",
    "check",
    "compare",
    "compare_models",
    "constant_like",
    "edit",
    "edit_of",
    "export_onnx",
    "export_ranks",
    "export_training",
    "fails",
    "findings_of_model",
    "flops",
    "fx_debug",
    "gradients",
    "heatmap",
    "histogram",
    "last_failed",
    "last_failed_report",
    "listing",
    "load",
    "loss_or_mean",
    "mean_of_output",
    "measures_csv",
    "measures_json",
    "measures_text",
    "memory",
    "model_addition_debugger_context",
    "page_of",
    "page_of_training",
    "patch",
    "paused_run",
    "plugins_csv",
    "plugins_json",
    "plugins_text",
    "profile",
    "project_settings",
    "region",
    "replay",
    "require_columns",
    "rules_csv",
    "rules_json",
    "rules_text",
    "run_to_compare",
    "save_golden",
    "save_measures",
    "shadow",
    "shows_ranks",
    "snapshot",
    "summary",
    "trace_forwards",
    "viewer_command",
    "watch",
    "watched_training",
    "weights",
]
