"""``check``: find what is wrong with the numbers of a run, live or saved."""

from __future__ import annotations

import os

from fxdebug.analyses import numerics
from fxdebug.analyses.findings import Findings
from fxdebug.api.files import load
from fxdebug.api.trace import Trace


def check(trace: Trace | str | os.PathLike[str], *, tensors: bool = True) -> Findings:
    """Find what is wrong with the numbers of a run, or of one saved in a folder; return findings, the worst first.

    A finding is the operation that made the first NaN or infinity, a value close to overflow, or precision lost to
    underflow or cancellation: see :func:`fxdebug.analyses.numerics.check_numerics`. ``tensors=False`` does not read the
    data that the run kept. Raises ``LoadError`` for a path that is no run.

    >>> import torch, fxdebug
    >>> print(fxdebug.check(fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(2))))
    Nothing wrong with the numbers (1 operations in 1 calls).
    """
    return numerics.check_numerics(trace if isinstance(trace, Trace) else load(trace), tensors=tensors)
