"""The gradients that two compared models or runs hold, looked at beside their comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from fxdebug.comparison.result import ComparisonData
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.features.gradients.compared.facing import Step
from fxdebug.features.gradients.compared.of_comparison import differing_gradients
from fxdebug.features.gradients.compared.of_run import step_of_run
from fxdebug.features.gradients.compared.report import ComparedRow
from fxdebug.plugins.feature import at

if TYPE_CHECKING:
    from torch import nn

Held: TypeAlias = "nn.Module | TraceData"
_OF_MODEL = "fxdebug.features.gradients.compared.of_model:step_of_grads"  # which loads torch


def gradients_beside(a: Held, b: Held) -> Callable[[ComparisonData], ReportData[ComparedRow] | None]:
    """Keep the gradients of two models or runs; return a function that tells how they differ.

    >>> from fxdebug import compare, fx_debug
    >>> import torch
    >>> trace = fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> gradients_beside(trace, trace)(compare(trace, trace)) is None
    True
    """
    steps = _step_of(a), _step_of(b)
    return lambda comparison: differing_gradients(comparison, *steps)


def _step_of(held: Held) -> Step | None:
    """Return the gradients that a model or a run holds, ``None`` where one of them has no numbers."""
    if isinstance(held, TraceData):
        return step_of_run(held)
    try:
        step: Step = at(_OF_MODEL)(held)
    except UsageError:
        return None
    return step
