"""The cost of a run: ``flops``."""

from __future__ import annotations

import os

from fxdebug.analyses import flops as flops_of_run
from fxdebug.analyses.flops import FlopsRow
from fxdebug.api.files import load
from fxdebug.api.report import Report
from fxdebug.api.trace import Trace


def flops(trace: Trace | str | os.PathLike[str]) -> Report[FlopsRow]:
    """Count the floating point operations of a run, per call and operation; the model is not needed.

    Counted are multiplications and additions of products (matrix products, convolutions, attention, recurrent layers):
    a product of an m×k with a k×n matrix has 2·m·k·n, as in ``torch.utils.flop_counter``. Operations whose number is
    not known are listed, not counted as 0. The backward is counted where the run asked for gradients.
    Raises ``UsageError`` for a run without graphs and ``LoadError`` for a path that is no run.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(4, 3), torch.ones(2, 4))
    >>> print(fxdebug.flops(trace).text(width=60, color=False))
    flops of Linear
    forward        48 FLOP
    multiply-adds  24
    backward       48 FLOP
    call      type      self  share  forward  backward not counted
    Linear#0  Linear 48 FLOP  100 %  48 FLOP   48 FLOP
    """
    return Report.of(flops_of_run.flops_report(trace if isinstance(trace, Trace) else load(trace)))
