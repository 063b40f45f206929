"""What happened inside my PyTorch model, and where does it go wrong?

>>> import torch
>>> from fxdebug import fx_debug
>>> trace = fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
>>> trace.root.outputs[0].shape
(1, 2)

Importing does nothing and loads no torch; the names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.data.calls import Call
from fxdebug.data.values import Stats, Value
from fxdebug.errors import FxDebugError, LoadError, MissingExtra, NonFinite, NotFound, SaveError, UsageError
from fxdebug.version import __version__

if TYPE_CHECKING:
    from fxdebug.api import (
        Trace,
        check,
        compare,
        compare_models,
        flops,
        fx_debug,
        last_failed,
        load,
        memory,
        model_addition_debugger_context,
        profile,
        save_golden,
        shadow,
        summary,
    )
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(api, name)
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
    "check",
    "compare",
    "compare_models",
    "flops",
    "fx_debug",
    "last_failed",
    "load",
    "memory",
    "model_addition_debugger_context",
    "profile",
    "save_golden",
    "shadow",
    "summary",
]
