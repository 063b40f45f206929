"""``compare``: compare two runs, traces or saved ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from fxdebug import api
from fxdebug.analyses.quantisation.report import QuantisedRow, quantised_report
from fxdebug.api.comparison import Comparison
from fxdebug.api.files import load
from fxdebug.api.reports.beside_comparison import kept_beside, with_reports
from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.comparison import compare_traces
from fxdebug.comparison.result import ComparisonData
from fxdebug.data.calls import Call
from fxdebug.data.trace import AnyTrace, TraceData, trace_of
from fxdebug.query.run_of_call import call_named, run_of_call

if TYPE_CHECKING:
    import torch


class Settings(TypedDict, total=False):
    """Arguments of :func:`compare` that say how two runs are compared."""

    mapping: Mapping[str, str] | str | os.PathLike[str] | None
    ignore: str | Iterable[str]
    tolerance: float | None
    strict: bool
    budget: float


class _WithWeights(Settings, total=False):
    weights_a: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None
    weights_b: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None


@overload
def compare(
    a: Trace | Call | str | os.PathLike[str],
    b: Trace | Call | str | os.PathLike[str],
    *,
    quantised: Literal[False] = False,
    **settings: Unpack[_WithWeights],
) -> Comparison:
    """Return the comparison, call by call."""


@overload
def compare(
    a: Trace | Call | str | os.PathLike[str],
    b: Trace | Call | str | os.PathLike[str],
    *,
    quantised: Literal[True],
    **settings: Unpack[_WithWeights],
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
    weights_a: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    weights_b: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    budget: float = 0.0,
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

    ``weights_a`` and ``weights_b`` are the weights of runs that did not keep them: state dicts, or paths of safetensors
    files, of ``.pt`` files (read without running anything in them) or of folders with such. Raises ``UsageError`` where
    they are not the weights that ran.

    With a ``budget``, causes are tried as in :func:`compare_models`, by runs with edits that begin in so many seconds:
    where both traces are of this process, with their models, and with ``values="tensors"`` or inputs of at most 4 MiB,
    or saved with tensors and weights, and return again what they returned. Without one no model runs, but for these
    cases. Of such runs that kept numbers only, in a narrow dtype or of two lengths, or of which no number differs
    though what they returned does, both run once more, and every element is compared. Of two runs of one model that
    differ, b runs again up to four times: so random numbers are known that torch does not draw. Where code differs, and
    two dtypes hide whether that matters, copies of both models are compared in float32, as in :func:`compare_models`.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Linear(2, 2), torch.ones(1, 2))
    >>> compare(trace, trace).equal
    True
    >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    >>> first, second = fxdebug.fx_debug(model, torch.ones(2)).find(type="ReLU")
    >>> compare(first, second).equal
    True
    """
    reference, run = run_to_compare(a, weights=weights_a), run_to_compare(b, weights=weights_b, argument="weights_b")

    def compared(one: TraceData, other: TraceData, *, strict: bool = strict) -> ComparisonData:
        return compare_traces.compare(one, other, mapping=mapping, ignore=ignore, tolerance=tolerance, strict=strict)

    found = compared(reference, run)
    if found.findings and any(map(_has_unmeasured_weights, (reference, run))):
        found = compared(api.with_saved_weights(reference), api.with_saved_weights(run))
    if quantised:
        return Report.of(quantised_report(found))
    if all(hasattr(each.graph_source, "model") for each in (reference, run)):
        found = api.seen_by_elements(Comparison.of(found), compared)
        if not found.findings and api.have_other_bits(reference, run):
            found = api.seen_by_elements(found, compared, always=True)
        found = api.told_of_parts(api.told_of_draws(found, compared))
    lacking = [getattr(each.data, "lacking", "") for each in (reference, run)]
    whole = Comparison.of(replace(found, notes=(*found.notes, *filter(None, lacking))))
    if budget > 0 and whole.findings:
        whole = api.tried_in_traces(whole, compared, budget)
    if whole.narrow is not None and not whole.findings:
        alone = (*whole.coverage.operations_a, *whole.coverage.operations_b)
        again = partial(api.compare_models, mapping=mapping, ignore=ignore, tolerance=tolerance, budget=budget)
        whole = api.told_in_wide_dtype(
            whole, lambda: bool(alone or compared(reference, run, strict=True).findings), again
        )
    return with_reports(whole, kept_beside(reference, run))


def compared_as_recorded(a: Trace, b: Trace, **settings: Any) -> Comparison:
    """Compare two traces by what they have kept: no model runs, so that all rows are of these two traces.

    ``settings`` are those of :func:`fxdebug.comparison.compare_traces.compare`.
    """
    return with_reports(Comparison.of(compare_traces.compare(a, b, **settings)), kept_beside(a, b))


def _has_unmeasured_weights(trace: TraceData) -> bool:
    """Has a run saved weights that it did not measure, as that of a large model?"""
    if not any(each.before is None for each in trace.parameters):
        return False
    return trace.data is not None and any(value.name is not None and value.saved is not None for value in trace.values)


def run_to_compare(
    run: Trace | Call | str | os.PathLike[str],
    *,
    rank: int | None = None,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    argument: str = "weights_a",
) -> Trace:
    """Return a run to compare: a trace unchanged, a saved run loaded, a call as a separate run.

    ``weights`` are those of a run that did not keep them, given as ``argument``.
    """
    if isinstance(run, Call):
        if weights is None:
            return Trace.of(run_of_call(run))
        return Trace.of(run_of_call(_with_weights(trace_of(run), weights, argument).calls[run.index]))
    if not isinstance(run, (str, os.PathLike)):
        return _with_weights(run, weights, argument)
    path, separator, name = os.fspath(run).rpartition("::")
    if not separator or Path(run).exists():
        return _with_weights(load(run, rank=rank), weights, argument)
    return Trace.of(run_of_call(call_named(_with_weights(load(path, rank=rank), weights, argument), name)))


def _with_weights(
    trace: AnyTrace, weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None, argument: str
) -> AnyTrace:
    if weights is None or not isinstance(trace, TraceData):
        return trace
    return api.with_weights(trace, weights, argument)  # by the door, as it loads torch
