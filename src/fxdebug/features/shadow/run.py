"""``shadow``: run a model and a copy in a wider dtype, and find where rounding errors grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fxdebug.api.run_model import arguments, settings_of
from fxdebug.api.trace import Trace
from fxdebug.capture.probe import internals
from fxdebug.errors import UsageError
from fxdebug.features.shadow import precision_loss
from fxdebug.features.shadow.report import Shadow
from fxdebug.features.shadow.twin_runs import twin_runs
from fxdebug.plugins.given import GivenModel


@internals.not_compiled
def shadow(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype | None = None,
    budget: int = 2 * 1024**3,
) -> Shadow:
    """Run a copy of a model and a twin in ``dtype`` (``torch.float64``), and find where rounding errors grow.

    ``inputs`` and ``kwargs`` are those of :func:`fxdebug.fx_debug`. The model itself is deep-copied twice and never
    run. Every result of the native run is kept until the twin reaches it, at most ``budget`` bytes. A model that draws
    random numbers (dropout in training) may draw others in the twin. The report has the error of every operation in
    ``rows``, that of every call in ``calls``, and the native run in ``trace``. Raises ``UsageError`` for a model that
    cannot be copied or whose twin cannot run, and passes on exceptions of the model.

    >>> import torch, fxdebug
    >>> class Shift(torch.nn.Module):
    ...     def forward(self, x):
    ...         return (x + 1e4) - 1e4
    >>> [(finding.kind, finding.op) for finding in fxdebug.shadow(Shift(), torch.linspace(-1, 1, 10)).findings]
    [('cancellation', 'sub')]
    """
    wide = torch.float64 if dtype is None else dtype
    if not isinstance(model, nn.Module) or not isinstance(wide, torch.dtype) or not wide.is_floating_point:
        raise UsageError(
            "shadow needs a torch.nn.Module and a floating dtype: shadow(model, inputs, dtype=torch.float64)"
        )
    args, keywords = arguments(inputs, kwargs)
    settings = settings_of(values="stats", method="forward", prune=False)
    trace, errors = twin_runs(model, args, keywords, wide, settings, budget)
    found = precision_loss.find_precision_loss(
        Trace.of(trace), str(wide)[6:], errors.of_nodes, errors.of_calls, errors.notes
    )
    return Shadow.of(found)


def on_model(given: GivenModel, limits: None) -> Shadow:
    """Answer ``check`` about a model."""
    return shadow(given.module, given.inputs, given.kwargs)
