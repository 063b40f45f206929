"""``summary``: list the calls of a run as torchinfo does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from fxdebug.api.reports.of_run import report_of_run
from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.features.summary.report import SummaryRow, summary_report


def summary(
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Report[SummaryRow]:
    """List the calls of a run with shapes, parameters, multiply-adds and sizes, as torchinfo does.

    ``model`` is a module, which is run once, or a run: a trace or the folder of one. Repeated layers are one line on
    the screen, with their numbers summed; parameters that several modules share count once.
    A module that was run is afterwards as it was: gradients, buffers, flags, attributes and random generators.
    Raises ``LoadError`` for a path that is no run, and passes on exceptions of the model.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> [(row.call, row.params, row.macs) for row in fxdebug.summary(model, torch.ones(2, 4)).rows]
    [('Sequential#0', 15, 24), ('0#0', 15, 24), ('1#0', 0, 0)]
    """
    return report_of_run(summary_report, model, inputs, kwargs)
