"""Settings of the process's and of torch's: a body that is run again must leave each of them as it was.

Those that nothing computes by are put back afterwards. The others, and those that cannot be asked for, must not be
set at all: a graph does not say under which of them it holds.
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
from fxdebug.capture.reasons import Words
from fxdebug.capture.replay.ambient_state import environment
from fxdebug.capture.replay.stateful_objects import back_to_what_it_is
from fxdebug.capture.torch_state import internals

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


def must_not_be_set() -> Iterator[tuple[Any, str, Words]]:
    """The owner and the name of each function that sets one, and what a body does that calls it."""
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


def rewinds() -> list[Callable[[], bool]]:
    """Calls that set each to what it is now, and tell whether it was something else."""
    return [back_to_what_it_is(get, put) for get, put in _PUT_BACK]


def _filter_warnings(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    getattr(warnings, "_filters_mutated", _nothing)()  # what was decided by others is forgotten


def _nothing() -> None:
    """Where Python finds out for itself."""


def _set_environment(variables: dict[Any, Any]) -> None:
    """As :func:`environment` has them."""
    if hasattr(os.environ, "_data"):
        variables = {os.environ.decodekey(name): os.environ.decodevalue(text) for name, text in variables.items()}
    os.environ.clear()
    os.environ.update(variables)


def _look_for_modules(path: list[str]) -> None:
    sys.path[:] = path


def _print_tensors(options: dict[str, Any]) -> None:
    held = vars(internals.PRINT_OPTS)
    held.clear()
    held.update(options)


_PUT_BACK: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (lambda: list(warnings.filters), _filter_warnings),
    (lambda: list(sys.path), _look_for_modules),
    (environment, _set_environment),
    (lambda: dict(vars(internals.PRINT_OPTS)), _print_tensors),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (gc.get_debug, gc.set_debug),
)
