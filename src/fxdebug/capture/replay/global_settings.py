"""Settings of the process and of torch, which a re-executed body must not change.

Settings that no computation depends on are restored afterwards. Setting any other, or one that cannot be read, is
refused: a graph does not say under which settings it holds.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fxdebug.capture import reasons
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.replay.ambient_state import environment
from fxdebug.capture.replay.stateful_objects import restorer_by
from fxdebug.capture.torch_state import internals

# Setters that are refused ------------------------------------------------------------------------

_LOGGING = (
    (logging.Logger, "setLevel addHandler removeHandler"), (logging.Handler, "setLevel"),
    (logging.Filterer, "addFilter removeFilter"), (logging, "disable"),
)  # fmt: skip
_PROCESS = (
    (os, "umask chdir fchdir nice sched_setaffinity", reasons.CHANGES_PROCESS_SETTING),
    (sys, "setrecursionlimit setswitchinterval", reasons.CHANGES_PROCESS_SETTING),  # recordings set them, too
    (signal, "signal alarm setitimer", reasons.CHANGES_SIGNALS),
    (atexit, "register unregister", reasons.CHANGES_EXIT),
)


def refused_setters() -> Iterator[tuple[Any, str, ReasonText]]:
    """Yield the owner and the name of each function that must not be called, and the reason the user reads."""
    for owner, name in internals.settings():
        yield owner, name, reasons.CHANGES_TORCH_SETTING(name=name.lstrip("_"))
    yield torch.backends.ContextProp, "__set__", reasons.CHANGES_TORCH_SETTING(name="torch.backends")
    for kind, names in _LOGGING:
        for name in names.split():
            yield kind, name, reasons.CHANGES_LOGGING(name=name)
    for owner, names, reason in _PROCESS:
        for name in names.split():
            if hasattr(owner, name):
                yield owner, name, reason(name=f"{owner.__name__}.{name}")


# Settings that are restored ----------------------------------------------------------------------


def setting_restorers() -> list[Callable[[], bool]]:
    """Return calls that restore the settings as they are now; each returns whether its setting had changed."""
    return [restorer_by(get, put) for get, put in _RESTORED]


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    getattr(warnings, "_filters_mutated", _nothing)()  # drops what Python cached under the other filters


def _nothing() -> None:
    """Do nothing: this Python notices changed filters by itself."""


def _set_environment(variables: dict[Any, Any]) -> None:
    """Set the variables, in the form in which :func:`environment` returns them."""
    if hasattr(os.environ, "_data"):
        variables = {os.environ.decodekey(name): os.environ.decodevalue(text) for name, text in variables.items()}
    os.environ.clear()
    os.environ.update(variables)


def _set_path(path: list[str]) -> None:
    sys.path[:] = path


def _set_print_options(options: dict[str, Any]) -> None:
    current = vars(internals.PRINT_OPTS)
    current.clear()
    current.update(options)


_RESTORED: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (lambda: list(warnings.filters), _set_filters),
    (lambda: list(sys.path), _set_path),
    (environment, _set_environment),
    (lambda: dict(vars(internals.PRINT_OPTS)), _set_print_options),
    (internals.attention_kernels, internals.set_attention_kernels),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (gc.get_debug, gc.set_debug),
)
