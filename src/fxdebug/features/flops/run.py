"""``flops``: count the floating point operations of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from fxdebug.analyses.cost.flops import FlopsRow, flops_report
from fxdebug.api.reports.of_run import report_of_run
from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace


def flops(
    model: nn.Module | Trace | str | os.PathLike[str],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Report[FlopsRow]:
    """Count the floating point operations of a run, per call and operation.

    ``model`` is a run, a trace or the folder of one, of which the model is not needed; or a module, which is run once.
    Counted are multiplications and additions of products (matrix products, convolutions, attention, recurrent layers):
    a product of an m×k with a k×n matrix has 2·m·k·n, as in ``torch.utils.flop_counter``. Operations whose number is
    not known are listed, not counted as 0. The backward is counted where the run asked for gradients.
    A module that was run is afterwards as it was: gradients, buffers, flags, attributes and random generators.
    Raises ``UsageError`` for a run without graphs and ``LoadError`` for a path that is no run, and passes on exceptions
    of the model.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(4, 3), torch.ones(2, 4))
    >>> print(fxdebug.flops(trace).text(width=60, color=False))
    flops of Linear
    forward        48 FLOP
    multiply-adds  24 MAC
    backward       48 FLOP
    call   type      self share forward backward
    Linear Linear 48 FLOP 100 % 48 FLOP  48 FLOP
    """
    return report_of_run(flops_report, model, inputs, kwargs)
