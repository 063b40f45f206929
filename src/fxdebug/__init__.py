"""What happened inside my PyTorch model, and where does it go wrong?

>>> import torch
>>> from fxdebug import fx_debug
>>> trace = fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
>>> trace.root.outputs[0].shape
(1, 2)

Importing does nothing and loads no torch; the names below are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.data.calls import Call
from fxdebug.data.values import Stats, Value
from fxdebug.errors import FxDebugError, LoadError, MissingExtra, NonFinite, NotFound, SaveError, UsageError
from fxdebug.version import __version__

if TYPE_CHECKING:
    from fxdebug.api import (
        Trace,
        ablate,
        activations,
        analyse,
        attention,
        check,
        compare,
        compare_models,
        edit,
        export_onnx,
        flops,
        fx_debug,
        gradients,
        heatmap,
        last_failed,
        last_failed_report,
        load,
        memory,
        model_addition_debugger_context,
        patch,
        profile,
        region,
        replay,
        save_golden,
        shadow,
        snapshot,
        summary,
        trace_forwards,
        watch,
        weights,
    )
    from fxdebug.apps.console.start import post_mortem
    from fxdebug.apps.console.start_live import debug
else:
    _OF_APPS = {"debug": "fxdebug.apps.console.start_live", "post_mortem": "fxdebug.apps.console.start"}

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        place = importlib.import_module(_OF_APPS[name]) if name in _OF_APPS else api
        value = globals()[name] = getattr(place, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Call",
    "FxDebugError",
    "LoadError",
    "MissingExtra",
    "NonFinite",
    "NotFound",
    "Report",
    "SaveError",
    "Stats",
    "Trace",
    "UsageError",
    "Value",
    "__version__",
    "ablate",
    "activations",
    "analyse",
    "attention",
    "check",
    "compare",
    "compare_models",
    "debug",
    "edit",
    "export_onnx",
    "flops",
    "fx_debug",
    "gradients",
    "heatmap",
    "last_failed",
    "last_failed_report",
    "load",
    "memory",
    "model_addition_debugger_context",
    "patch",
    "post_mortem",
    "profile",
    "region",
    "replay",
    "save_golden",
    "shadow",
    "snapshot",
    "summary",
    "trace_forwards",
    "watch",
    "weights",
]
