"""The report of an analysis until the model raised in it: ``last_failed_report``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from fxdebug.api.reports.report import Report

_last_failed: Report[object] | None = None


def remember(report: Callable[[], Report[object]]) -> None:
    """Keep the report of a run that raised; if it cannot be made, the exception of the model is all there is."""
    global _last_failed
    _last_failed = None
    with contextlib.suppress(Exception):
        _last_failed = report()


def last_failed_report() -> Report[object] | None:
    """Return what ``profile`` or ``memory`` had measured when the model last raised in one of them, or ``None``.

    >>> import torch, fxdebug
    >>> try:
    ...     fxdebug.memory(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)), torch.ones(1, 2))
    ... except RuntimeError:
    ...     print([row.call for row in fxdebug.last_failed_report().rows])
    ['0#0', 'Sequential#0', '1#0']
    """
    return _last_failed
