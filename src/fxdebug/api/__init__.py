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
    from fxdebug.api.check_run import check
    from fxdebug.api.compare_live import compare_models
    from fxdebug.api.compare_runs import compare, run_to_compare
    from fxdebug.api.comparison import Comparison
    from fxdebug.api.cost_reports import flops, mean_of_output, memory, profile, summary
    from fxdebug.api.files import load, save_golden
    from fxdebug.api.report import Report
    from fxdebug.api.run_model import fx_debug, last_failed
    from fxdebug.api.shadow_run import shadow
    from fxdebug.api.trace import Trace
    from fxdebug.api.transformers_context import model_addition_debugger_context
    from fxdebug.exports.text import listing
else:
    _MODULES = {
        "Comparison": "fxdebug.api.comparison",
        "Report": "fxdebug.api.report",
        "Trace": "fxdebug.api.trace",
        "check": "fxdebug.api.check_run",
        "compare": "fxdebug.api.compare_runs",
        "compare_models": "fxdebug.api.compare_live",
        "flops": "fxdebug.api.cost_reports",
        "fx_debug": "fxdebug.api.run_model",
        "last_failed": "fxdebug.api.run_model",
        "listing": "fxdebug.exports.text",
        "run_to_compare": "fxdebug.api.compare_runs",
        "load": "fxdebug.api.files",
        "mean_of_output": "fxdebug.api.cost_reports",
        "memory": "fxdebug.api.cost_reports",
        "model_addition_debugger_context": "fxdebug.api.transformers_context",
        "profile": "fxdebug.api.cost_reports",
        "save_golden": "fxdebug.api.files",
        "summary": "fxdebug.api.cost_reports",
        "shadow": "fxdebug.api.shadow_run",
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
    "Comparison",
    "Report",
    "Trace",
    "check",
    "compare",
    "compare_models",
    "flops",
    "fx_debug",
    "last_failed",
    "listing",
    "load",
    "mean_of_output",
    "memory",
    "model_addition_debugger_context",
    "profile",
    "run_to_compare",
    "save_golden",
    "shadow",
    "summary",
]
