"""What happened inside my PyTorch model, and where does it go wrong?

>>> import torch
>>> from fxdebug import fx_debug
>>> trace = fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
>>> trace.root.outputs[0].shape
(1, 2)

Importing does nothing and loads no torch; the names below are looked up when they are used.
"""

from fxdebug.api import (
    check,
    compare,
    compare_models,
    fx_debug,
    last_failed,
    load,
    model_addition_debugger_context,
    save_golden,
    shadow,
)
from fxdebug.errors import FxDebugError, LoadError, MissingExtra, NonFinite, NotFound, SaveError, UsageError
from fxdebug.trace import Call, Trace
from fxdebug.values import Stats, Value
from fxdebug.version import __version__

__all__ = [
    "Call",
    "FxDebugError",
    "LoadError",
    "MissingExtra",
    "NonFinite",
    "NotFound",
    "SaveError",
    "Stats",
    "Trace",
    "UsageError",
    "Value",
    "__version__",
    "check",
    "compare",
    "compare_models",
    "fx_debug",
    "last_failed",
    "load",
    "model_addition_debugger_context",
    "save_golden",
    "shadow",
]
