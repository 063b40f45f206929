"""``compare``: compare two runs, traces or saved ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from fxdebug.api.comparison import Comparison
from fxdebug.api.files import load
from fxdebug.api.trace import Trace
from fxdebug.comparison import compare_traces


def compare(
    a: Trace | str | os.PathLike[str],
    b: Trace | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
) -> Comparison:
    """Compare a run ``b`` with a reference ``a``: see :func:`fxdebug.comparison.compare_traces.compare`.

    Both are traces, or paths of saved runs, which are loaded.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> compare(trace, trace).equal
    True
    """
    reference, run = (trace if not isinstance(trace, (str, os.PathLike)) else load(trace) for trace in (a, b))
    return Comparison.of(compare_traces.compare(reference, run, mapping=mapping, ignore=ignore, tolerance=tolerance))
