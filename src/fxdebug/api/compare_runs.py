"""``compare``: compare two runs, traces or saved ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, overload

from fxdebug.analyses.gradients.facing import Step
from fxdebug.analyses.gradients.of_comparison import differing_gradients
from fxdebug.analyses.gradients.of_run import step_of_run
from fxdebug.analyses.quantisation.report import QuantisedRow, quantised_report
from fxdebug.api.comparison import Comparison
from fxdebug.api.files import load
from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.comparison import compare_traces
from fxdebug.data.calls import Call
from fxdebug.query.run_of_call import call_named, run_of_call


@overload
def compare(
    a: Trace | Call | str | os.PathLike[str],
    b: Trace | Call | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
    strict: bool = False,
    quantised: Literal[False] = False,
) -> Comparison:
    """Return the comparison, call by call."""


@overload
def compare(
    a: Trace | Call | str | os.PathLike[str],
    b: Trace | Call | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
    strict: bool = False,
    quantised: Literal[True],
) -> Report[QuantisedRow]:
    """Return the report on b, a quantised version of a."""


def compare(
    a: Trace | Call | str | os.PathLike[str],
    b: Trace | Call | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
    strict: bool = False,
    quantised: bool = False,
) -> Comparison | Report[QuantisedRow]:
    """Compare a run ``b`` with a reference ``a``: see :func:`fxdebug.comparison.compare_traces.compare`.

    Both are traces, calls, or paths of saved runs, which are loaded; ``RUN::PATH`` is a call of a saved run, such as
    ``runs/port::layers.3``, ``runs/port::norm#1`` (the second call of a module) or ``runs/port::#2`` (the third of the
    model itself). Of calls, what is inside them is compared, with paths relative to them: a layer with the next one,
    or two steps of ``generate``. With ``quantised``, b is a quantised version of a: no faults are told, but a report
    ranks the calls by the error that each adds (see :func:`fxdebug.compare_models`, which also measures its effect).
    Where gradients were attached to both runs, and differ, ``comparison.gradients`` is the report of
    :func:`fxdebug.compare_gradients`.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> compare(trace, trace).equal
    True
    >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    >>> first, second = fxdebug.fx_debug(model, torch.ones(2)).find(type="ReLU")
    >>> compare(first, second).equal
    True
    """
    reference, run = run_to_compare(a), run_to_compare(b)
    found = compare_traces.compare(reference, run, mapping=mapping, ignore=ignore, tolerance=tolerance, strict=strict)
    if quantised:
        return Report.of(quantised_report(found))
    return with_gradients(Comparison.of(found), step_of_run(reference), step_of_run(run))


def with_gradients(comparison: Comparison, a: Step | None, b: Step | None) -> Comparison:
    """Return a comparison with how the gradients of both differ, where both hold some."""
    report = differing_gradients(comparison, a, b)
    return comparison if report is None else replace(comparison, gradients=Report.of(report))


def run_to_compare(run: Trace | Call | str | os.PathLike[str], *, rank: int | None = None) -> Trace:
    """Return a run to compare: a trace as it is, a saved run loaded, a call as a run of its own."""
    if isinstance(run, Call):
        return Trace.of(run_of_call(run))
    if not isinstance(run, (str, os.PathLike)):
        return run
    path, separator, name = os.fspath(run).rpartition("::")
    if not separator or Path(run).exists():
        return load(run, rank=rank)
    return Trace.of(run_of_call(call_named(load(path, rank=rank), name)))
